"""A Redis client whose failures are errors that a user can read."""

from __future__ import annotations

from typing import Any

from ordstream.errors import PlanError, SourceError


class Asking:
    """``with Asking(...) as client``: inside, a failing request becomes a SourceError.

    The url is in no error: it may hold a password.
    """

    def __init__(self, client: Any, failures: type[Exception], stream: str) -> None:
        self._client = client
        self._failures = failures
        self._stream = stream

    def __enter__(self) -> Any:
        return self._client

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, self._failures):
            raise SourceError(
                f"stream {self._stream!r}: the Redis server does not answer as it should: {error}"
            ) from error

    def close(self) -> None:
        """End the connection."""
        self._client.close()


def asking(url: str, stream: str) -> Asking:
    """A client of the server at `url`.

    Raises
    ------
    PlanError
        The package is missing, or this is no url of a server.
    """
    try:
        import redis
    except ImportError as error:
        raise PlanError(
            "ordstream.redis_streams needs the package redis: pip install 'ordstream[redis]'"
        ) from error
    try:
        client = redis.Redis.from_url(url, decode_responses=False)
    except ValueError:
        raise PlanError(
            "ordstream.redis_streams: .option('url', ...) must be redis://host:port/0, rediss://... or "
            "unix://path"
        ) from None  # it may quote the url
    return Asking(client, redis.RedisError, stream)
