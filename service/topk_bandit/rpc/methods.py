"""The methods that a server answers, as (service, method) pairs."""

from __future__ import annotations

from google.longrunning import operations_pb2
from grpc_health.v1 import health_pb2

from topk_bandit.v1 import bandit_service_pb2, preference_service_pb2, recommender_service_pb2

__all__ = ["served_methods"]


def served_methods() -> frozenset[tuple[str, str]]:
    """Return every method of our services and of the health service."""
    modules = (recommender_service_pb2, bandit_service_pb2, preference_service_pb2, operations_pb2, health_pb2)
    files = [module.DESCRIPTOR for module in modules]
    services = [service for file in files for service in file.services_by_name.values()]
    return frozenset((service.full_name, method.name) for service in services for method in service.methods)
