"""The built-in release as files: the population, the spec, and the code lists that it names."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import BinaryIO

from ..errors import InvalidArgument, ReleaseError
from .people import population


def write_population(path: str | Path, people: int = 200_000, seed: int = 2020) -> Path:
    """Write `population` to a new CSV or Parquet file, by the ending of ``path``.

    Raises:
        InvalidArgument: if the ending is neither .csv nor .parquet.
        ReleaseError: if the file exists.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_population(Path(folder) / "people.csv", people=3).read_text().splitlines()[0]
        '"county","age","sex","race","ethnicity","relationship","quarters"'
    """
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise InvalidArgument(f"cannot tell the format of {path.name!r}: name the file .csv or .parquet")
    with _new_file(path) as file:
        if path.suffix == ".csv":
            import pyarrow as pa
            from pyarrow import csv

            table = population(people, seed)
            plain = [pa.field(f.name, pa.int16() if f.name == "age" else pa.string()) for f in table.schema]
            csv.write_csv(table.cast(pa.schema(plain)), file)
        else:
            from pyarrow import parquet

            parquet.write_table(population(people, seed), file)
    return path


def write_demo(folder: str | Path, people: int = 200_000, seed: int = 2020) -> Path:
    """Write all that the built-in release needs, and return the path of its spec.

    The folder, made if need be, then holds ``demo.toml``, the code lists that it names, and
    ``people.parquet``; the ledger that the spec names is yet to be created.

    Raises:
        ReleaseError: if one of the files exists.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     spec = write_demo(folder, people=3)
        ...     sorted(p.name for p in spec.parent.iterdir())
        ['codes', 'demo.toml', 'people.parquet']
    """
    folder = Path(folder)
    data = resources.files("tabulae").joinpath("data")
    (folder / "codes").mkdir(parents=True, exist_ok=True)
    for code_list in data.joinpath("codes").iterdir():
        _copy(code_list, folder / "codes" / code_list.name)
    write_population(folder / "people.parquet", people, seed)
    return _copy(data.joinpath("demo.toml"), folder / "demo.toml")


def _copy(resource: Traversable, path: Path) -> Path:
    with _new_file(path) as file:
        file.write(resource.read_bytes())
    return path


def _new_file(path: Path) -> BinaryIO:
    try:
        return path.open("xb")
    except FileExistsError:
        raise ReleaseError(f"{path} exists: remove it, or choose another folder") from None
