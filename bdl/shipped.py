"""The benchmarks that come with the package."""

from importlib import resources
from pathlib import Path


def shipped() -> dict[str, Path]:
    """Find their files by name, in the installed package or in the checkout that it runs from."""
    package = Path(str(resources.files("bdl")))
    folder = package / "benchmarks"
    if not folder.is_dir():
        folder = package.parent / "benchmarks"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
