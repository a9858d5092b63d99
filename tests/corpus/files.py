"""Small files as programs write them, each with the same three rows: those of `ROWS` or those of `ANSWERS`."""

from __future__ import annotations

from datetime import UTC, datetime

from topk_bandit.client import PastAnswer
from topk_bandit.client.imports import PastObservation

__all__ = ["ANSWERS", "ANSWER_FILES", "FILES", "REFUSED", "ROWS"]

ROWS = [
    PastObservation(("tea", "milk"), 0.7, features={"country": "DE"}, time=datetime(2026, 1, 31, 12, tzinfo=UTC)),
    PastObservation(("milk", "black tea"), 0.1, features={"country": "FR"}, time=datetime(2026, 2, 1, tzinfo=UTC)),
    PastObservation(("coffee, black", "tea"), 12.0, features={}, time=datetime(2026, 2, 2, 8, 30, tzinfo=UTC)),
]

FILES = {
    "excel.csv": "\ufeffitem_1;item_2;reward;country;time\r\n"
    "tea;milk;0.7;DE;2026-01-31 12:00\r\n"
    "milk;black tea;0.1;FR;2026-02-01\r\n"
    "coffee, black;tea;12;;2026-02-02 08:30\r\n",
    "libreoffice.csv": "item_1,item_2,reward,country,time\n"
    "tea,milk,0.7,DE,2026-01-31 12:00:00\n"
    "milk,black tea,0.1,FR,2026-02-01 00:00:00\n"
    '"coffee, black",tea,12,,2026-02-02 08:30:00\n',
    "r.csv": '"","item_1","item_2","reward","country","time"\n'
    '"1","tea","milk",0.7,"DE",2026-01-31T12:00:00Z\n'
    '"2","milk","black tea",0.1,"FR",2026-02-01T00:00:00Z\n'
    '"3","coffee, black","tea",12,"",2026-02-02T08:30:00Z\n',
    "pandas.csv": ",item_1,item_2,reward,country,time\n"
    "0,tea,milk,0.7,DE,2026-01-31 12:00:00+00:00\n"
    "1,milk,black tea,0.1,FR,2026-02-01 00:00:00+00:00\n"
    '2,"coffee, black",tea,12.0,,2026-02-02 08:30:00+00:00\n',
    "spark.csv": "item_1,item_2,reward,country,time\n"
    "tea,milk,0.7,DE,2026-01-31T12:00:00.000Z\n"
    "milk,black tea,0.1,FR,2026-02-01T00:00:00.000Z\n"
    '"coffee, black",tea,12.0,"",2026-02-02T08:30:00.000Z\n',
    "UPPER.CSV": "item_1,item_2,reward,country,time,,\r\n"
    "tea,milk,0.7,DE,20260131T120000Z,,\r\n"
    "milk,black tea,0.1,FR,20260201,,\r\n"
    ",,,,,,\r\n"
    '"coffee, black",tea,12,,20260202T083000Z,,\r\n',
    "by-hand.csv": "item_1, item_2, reward, country, time\n\n"
    "tea, milk, 0.7, DE, 1769860800\n"
    "milk, black tea, .1, FR, 1769904000000\n"
    '"coffee, black", tea, 12, , 1770021000\n',
    "tabs.csv": "item_1\titem_2\treward\tcountry\ttime\n"
    "tea\tmilk\t0.7\tDE\t2026-01-31T12:00Z\n"
    "milk\tblack tea\t1e-1\tFR\t2026-02-01\n"
    "coffee, black\ttea\t12\t\t2026-02-02T08:30Z\n",
    "tabs.TSV": "item_1\titem_2\treward\tcountry\ttime\n"
    "tea\tmilk\t0.7\tDE\t2026-01-31T12:00Z\n"
    "milk\tblack tea\t1e-1\tFR\t2026-02-01\n"
    "coffee, black\ttea\t12\t\t2026-02-02T08:30Z\n",
    "lists.csv": "items,reward,country,time\n"
    "tea|milk,0.7,DE,2026-01-31T12:00Z\n"
    '"[""milk"", ""black tea""]",0.1,FR,2026-02-01\n'
    '"coffee, black|tea",12,,2026-02-02T08:30Z\n',
    "pandas.jsonl": '{"item_1":"tea","item_2":"milk","reward":0.7,"country":"DE","time":1769860800000}\n'
    '{"item_1":"milk","item_2":"black tea","reward":0.1,"country":"FR","time":1769904000000}\n'
    '{"item_1":"coffee, black","item_2":"tea","reward":12.0,"country":null,"time":1770021000000}\n',
    "nested.jsonl": '{"items":["tea","milk"],"reward":0.7,"features":{"country":"DE"},"time":"2026-01-31T12:00:00Z"}\n'
    '{"items":["milk","black tea"],"reward":0.1,"features":{"country":"FR"},"time":"2026-02-01"}\n'
    '{"items":["coffee, black","tea"],"reward":12,"features":{"country":NaN},"time":"2026-02-02T08:30:00Z"}\n',
    "several.jsonl": '{"items":"tea|milk","reward":"0.7","features.country":"DE","time":1769860800}\n\n'
    '{"time":"20260201","reward":0.1,"country":"FR","items":["milk","black tea"]}\n'
    '{"items":["coffee, black","tea"],"reward":12,"time":"2026-02-02T09:30:00+01:00"}',
}

ANSWERS = [
    PastAnswer(["tea", "milk", "coffee"]),
    PastAnswer(["milk", "tea"]),
    PastAnswer(["coffee", "milk", "tea"]),
]

ANSWER_FILES = {
    "excel.csv": "\ufeffquestion;item_1;item_2;item_3\r\n1;tea;milk;coffee\r\n2;milk;tea;\r\n3;coffee;milk;tea\r\n",
    "r.csv": '"","item_1","item_2","item_3"\n"1","tea","milk","coffee"\n"2","milk","tea",\n"3","coffee","milk","tea"\n',
    "permuted.csv": "item_3,item_1,item_2\ncoffee,tea,milk\n,milk,tea\ntea,coffee,milk\n",
    "lists.csv": "items\ntea|milk|coffee\nmilk|tea\ncoffee|milk|tea\n",
    "lists.jsonl": '{"items":["tea","milk","coffee"]}\n{"items":["milk","tea"]}\n{"items":["coffee","milk","tea"]}\n',
    "votes.soi": "# FILE NAME: votes.soi\n# NUMBER ALTERNATIVES: 3\n# NUMBER VOTERS: 3\n"
    "# ALTERNATIVE NAME 1: tea\n# ALTERNATIVE NAME 2: milk\n# ALTERNATIVE NAME 3: coffee\n"
    "1: 1,2,3\n1: 2, 1\n1: 3,2,1\n",
}

REFUSED = {
    "sheets.csv": ("item_1,item_2,reward\r\ntea,milk,0.7", "line 2: the last line has no end"),
    "excel-sep.csv": (
        "sep=;\r\nitem_1;item_2;reward\r\ntea;milk;1\r\n",
        "line 1: the file begins with 'sep='",
    ),
    "utf16.csv": ("item_1,item_2,reward\n".encode("utf-16"), "is no text in UTF-8"),
    "latin1.csv": ("item_1,item_2,reward\nkäse,milk,1\n".encode("latin-1"), "line 2: is no text in UTF-8"),
    "spark-quotes.csv": ('item_1,item_2,reward\n"a \\"b\\"",milk,1\n', 'line 2: a quote (") opens here'),
    "r-write-table.csv": ("item_1,item_2,reward\n1,tea,milk,1\n", "line 2, row: expected 3 cells"),
    "decimal-comma.csv": (
        "item_1;item_2;reward\ntea;milk;0,7\n",
        "column 'reward': expected a finite number, got '0,7': w",
    ),
    "doubled.csv": ("item_1,item_2,reward,reward\ntea,milk,1,2\n", "line 1: column 'reward' comes twice"),
    "doubled.jsonl": (
        '{"item_1":"tea","item_2":"milk","reward":1,"reward":2}\n',
        "line 1, row: has the key 'reward' twice",
    ),
    "both.jsonl": ('{"items":["tea","milk"],"item_1":"tea","reward":1}\n', "says what item_1 says, too"),
    "both-features.jsonl": (
        '{"items":["a","b"],"reward":1,"country":"DE","features":{"country":"FR"}}\n',
        "is there twice",
    ),
    "gap.csv": ("item_1,item_2,item_3,reward\ntea,,milk,1\n", "column 'item_3': there are 2 at most"),
    "beyond.csv": ("item_1,item_2,item_3,reward\ntea,milk,coffee,1\n", "column 'item_3': there are 2 at most"),
    "one.jsonl": ('[{"items":["tea","milk"],"reward":1}]\n', "line 1: begins a list of JSON: write one object in each"),
    "array.jsonl": (
        '[\n{"items":["a","b"],"reward":1}\n]\n',
        "line 1: begins a list of JSON: write one object in each",
    ),
    "pretty.jsonl": ('{\n"items":["a","b"],"reward":1\n}\n', "line 2 column 1 (char 2): write one object in each line"),
    "tiny.jsonl": ('{"items":["a","b"],"reward":1e-400}\n', "line 1, row: has 1e-400, which would be read as 0"),
    "blanks.jsonl": (
        '{"items":["a"," b"],"reward":1}\n',
        "column 'items': expected a text without blanks around it, got",
    ),
    "blank.item.jsonl": (
        '{"item_1":"a","item_2":"b ","reward":1}\n',
        "column 'item_2': expected a text without blanks",
    ),
    "german.csv": ("item_1;item_2;reward\na;b;1.234\n", "got '1.234': write 1234 if the point separates thousands, or"),
    "german-price.csv": (
        "item_1;item_2;reward;price\na;b;1.5;3,50\na;b;1.234;4\n",
        "line 3, column 'reward': expected a",
    ),
    "german-tabs.tsv": ("item_1\titem_2\treward\tprice\na\tb\t1.234\t3,50\n", "got '1.234': write 1234 if the point"),
    "german-quoted.csv": (
        'item_1,item_2,reward,price\na,b,1.234,"3,50"\n',
        "got '1.234': write 1234 if the point separates",
    ),
    "gaps.csv": (
        "item_1,item_2,reward\n101.0,102.0,1\n",
        "column 'item_1': expected a text, got '101.0', which may be a",
    ),
    "german-gaps.csv": (
        "item_1;item_2;reward\na;b;1\na;3.000;1\n",
        "line 3, column 'item_2': expected a text, got '3.000',",
    ),
    "marks.csv": ("items,reward\na|\\N,1\n", "column 'items': part 2 of the list is missing: 'a|\\\\N'"),
    "pipe.csv": ("item_1|item_2|reward\na|b|1\n", "line 1: cells seem to be separated by '|': separate them by commas"),
    "hive.csv": (
        "item_1\x01item_2\x01reward\na\x01b\x011\n",
        "line 1: cells seem to be separated by '\\x01': separate",
    ),
    "tabs.csv": (
        "item_1\titem_2\treward, EUR\na\tb\t1\n",
        "cells seem to be separated by tabs: rename the file to .tsv",
    ),
    "commas.tsv": ("item_1,item_2,reward\na,b,1\n", "cells seem to be separated by commas: rename the file to .csv"),
    "comment.csv": (
        "# of 2026\nitem_1,item_2,reward\na,b,1\n",
        "line 1: the file begins with '#': delete lines of comments",
    ),
    "comments.csv": (
        "item_1,item_2,reward\n# half\na,b,1\n",
        "line 2, row: expected 3 cells, as the header has, got 1: del",
    ),
    "utf16-le.csv": ("item_1,item_2,reward\n".encode("utf-16-le"), "line 1: is no text in UTF-8: save it as UTF-8"),
    "near.csv": (
        "item_1,item_2,reward,contry\ntea,milk,1,DE\n",
        "line 1, column 'contry': means nothing; is it",
    ),
    "case.csv": ("Item_1,Item_2,Reward\ntea,milk,1\n", "means nothing; is it 'item_1'?"),
    "no-header.csv": (
        "tea,milk,1\nmilk,tea,2\n",
        "line 1, header: expected a column 'item_1' or",
    ),
    "no-name.csv": ("item_1,item_2,reward,\ntea,milk,1,DE\n", "column 4: has 'DE', but no name in the header"),
    "pandas-times.csv": (
        ",item_1,item_2,reward\n2026-01-31 12:00:00,tea,milk,1\n",
        "line 2, column 1: '2026-01-31 12:00:00' is no row's number counted from 0 or 1 on, but the column has no name",
    ),
    "pandas-items.csv": (",item_1,reward\ntea,milk,1\n", "has no name: give it one, or delete it"),
    "pandas-ids.csv": (
        ",item_1,item_2,reward\n0,tea,milk,1\n1,tea,milk,1\n3,tea,milk,1\n",
        "line 4, column 1: '3'",
    ),
    "r-years.csv": ('"","item_1","item_2","reward"\n"2026","tea","milk",1\n', "line 2, column 1: '2026'"),
    "begins-late.csv": (",item_1,item_2,reward\n,tea,milk,1\n1,tea,milk,1\n", "line 3, column 1: '1'"),
    "stops.csv": (",item_1,item_2,reward\n1,tea,milk,1\n,tea,milk,1\n", "line 3, column 1: ''"),
    "postgres.csv": ('items,reward\n"{tea,milk}",1\n', "expected a list, got '{tea,milk}': write its parts as a|b"),
    "comma.csv": ('items,reward\n"tea, milk",1\n', "expected 2 items, got 1: write its parts as a|b, or as a list of"),
    "thousands.csv": ('item_1,item_2,reward\na,b,"1,234.50"\n', "got '1,234.50': write no separators of thousands"),
    "empty.csv": ("", "has no header row"),
    "blank.jsonl": ("\n\n", "has no rows"),
    "rows.txt": ("item_1\n", "got 'rows.txt': with tabs between its cells rename it to .tsv, else to .csv"),
    "rows.ndjson": ("{}\n", "got 'rows.ndjson': with one object in each line rename it to .jsonl"),
    "rows.oui": ("item_1\n", "got 'rows.oui': rename it by what it has, such as .csv for a table with commas, or save"),
    "joined.csv": (
        "item_1,item_2,reward\ntea,milk,1\n\ufefftea,milk,1\n",
        "line 3, column 'item_1': expected a text without characters around it that nobody sees, got '\\ufefftea'",
    ),
    "web-page.csv": ("item_1,item_2,reward\ntea\u200b,milk,1\n", "got 'tea\\u200b': write 'tea'"),
    "torn.csv": (
        "item_1,item_2,reward\ntea,mi\0lk,1\n",
        "line 2, column 'item_2': expected a text, got 'mi\\x00lk': it has a NUL",
    ),
    "lost.jsonl": (
        '{"items":["tea","milk"],"reward":1,"country":"\ufffdsterreich"}\n',
        "it has U+FFFD, which stands where a",
    ),
    "times.csv": (
        "item_1,item_2,reward,timestamp\ntea,milk,1,2026-01-31\n",
        "column 'timestamp': means nothing; is it 'time'? Rename it, or pass it over: --ignore timestamp",
    ),
    "aggregated.csv": (
        "item_1,item_2,reward,impressions\ntea,milk,1,500\n",
        "column 'impressions': seems to say how many slates it stands for, but each row is one slate: repeat the ro",
    ),
    "flattened.csv": ("item_1,item_2,reward,size[0]\ntea,milk,1,5\n", "column 'size[0]': means nothing; is it 'size'?"),
    "other-context.jsonl": (
        '{"items":["tea","milk"],"reward":1,"context":{"country":"DE"}}\n',
        "column 'context': can't be used: the bandit has a context_schema, so give features, or pass it over",
    ),
    "few-orders.soi": (
        "# NUMBER UNIQUE ORDERS: 3\n# ALTERNATIVE NAME 1: tea\n# ALTERNATIVE NAME 2: milk\n1: 1,2\n1:1, 2\n1: 2,1\n",
        "few-orders.soi: has 2 unique orders, but says that there are 3: it may be cut",
    ),
    "few-items.soi": (
        "# NUMBER ALTERNATIVES: 3\n# ALTERNATIVE NAME 1: tea\n# ALTERNATIVE NAME 2: milk\n1: 1,2\n",
        "few-items.soi: has 2 alternatives, but says that there are 3: it may be cut",
    ),
    "joined.soi": (
        "# NUMBER VOTERS: 2\n# NUMBER VOTERS: 1\n# ALTERNATIVE NAME 1: tea\n1: 1\n",
        "line 2: says that there are 1 voters, and before that there are 2",
    ),
    "unnamed.toc": ("# ALTERNATIVE NAME 1: tea\n1: {1},2\n", "there is no item '2'"),
    "cut.soc": ("# NUMBER VOTERS: 2\n# ALTERNATIVE NAME 1: tea\n# ALTERNATIVE NAME 2: milk\n1: 1,2\n", "it may be cut"),
    "old.soc": ("2\n1,tea\n2,milk\n", "has the form of before 2022"),
}
