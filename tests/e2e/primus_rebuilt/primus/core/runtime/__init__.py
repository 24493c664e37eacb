"""Primus as far as its logging goes, rebuilt; see core/utils/logger.py."""

from .logging import init_worker_logger, update_module_name

__all__ = ["init_worker_logger", "update_module_name"]
