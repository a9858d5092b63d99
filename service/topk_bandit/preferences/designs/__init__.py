"""D-optimal designs: how often to ask about each list, with a bound on what could still be gained.

Which 3 of 30 items should people rank, so that 12 answers tell most about what makes items good? The design is a
distribution over few of the 4,060 triples; its gap says that no distribution has a log det V that is larger by more:

>>> import numpy as np
>>> from topk_bandit.preferences.designs.optimal import d_optimal_subsets
>>> features = np.random.default_rng(0).normal(size=(30, 4))
>>> design = d_optimal_subsets(features, subset_size=3, gap_tolerance=0.01, rng=np.random.default_rng(1))
>>> design.gap <= 0.01
True
>>> times = design.allocate(12)
>>> questions = np.repeat(design.subsets, times, axis=0)
>>> questions.shape
(12, 3)

`d_optimal_lists` chooses among lists that are given instead, such as the results of queries:

>>> from topk_bandit.preferences.designs.optimal import d_optimal_lists, ranking_matrices
>>> lists = np.random.default_rng(2).normal(size=(100, 5, 4))
>>> chosen = d_optimal_lists(ranking_matrices(lists), gap_tolerance=0.01)
>>> int(np.count_nonzero(chosen.weights)) <= 4 * 5 // 2
True
"""
