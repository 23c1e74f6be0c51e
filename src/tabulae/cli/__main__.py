"""``python -m tabulae.cli``: the same as ``tabulae``."""

from ._main import main

main()
