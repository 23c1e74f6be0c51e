"""The address of a server that holds records: which addresses are taken."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

SCHEMES = ("postgresql", "postgres")
_SECRETS = {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}


def is_url(text: str) -> bool:
    """Whether a place of records is written as an address and not as a path.

    >>> is_url("postgresql://census.example/people"), is_url("people.csv")
    (True, False)
    """
    return "://" in text


def url_mistake(url: str) -> str | None:
    """What is wrong with the address of a PostgreSQL database, in words that repeat no part of it; None for nothing.

    It holds no password: documents are shown, kept and published, and what stands in a command is seen by all who list
    processes.

    >>> url_mistake("postgresql://clerk@census.example/people?sslmode=verify-full")
    >>> url_mistake("postgresql://clerk:secret@census.example/people")
    'holds a password: remove it, and set PGPASSWORD or use a password file (PGPASSFILE)'
    """
    try:
        urlsplit(url)
    except ValueError:
        return "is not a url: write it as postgresql://user@host:5432/database"
    scheme, sign, rest = url.partition("://")
    if not sign or scheme not in SCHEMES:
        return "does not begin with postgresql://: other servers are not read"
    # As libpq divides it, which knows no fragments: "#" is a letter like others, and "?" may stand in a password.
    as_read = re.match("[^/@]*@", rest)
    # As it is meant by one who does not write the "/" in a password as %2F.
    as_meant = rest.partition("?")[0].rpartition("@")[0]
    options = {unquote(part.partition("=")[0]).strip().lower() for part in re.split("[?&;]", rest)}
    if ":" in as_meant or (as_read and ":" in as_read[0]) or options & _SECRETS:
        return "holds a password: remove it, and set PGPASSWORD or use a password file (PGPASSFILE)"
    return None
