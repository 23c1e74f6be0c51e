"""Spark's session, and the Java that it runs on: for counting, and for estimates on a cluster."""

from .session import spark_session

__all__ = ["spark_session"]
