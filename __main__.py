"""``python -m foedus``."""

from .cli import main

main()
