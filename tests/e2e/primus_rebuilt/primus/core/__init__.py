"""Primus as far as its logging goes, rebuilt; see core/utils/logger.py."""
