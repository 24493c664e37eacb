"""Adapters for training frameworks: one import and one call each, and a framework is imported only then."""
