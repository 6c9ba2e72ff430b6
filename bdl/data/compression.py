"""Content of files that may be compressed, whatever their names end in."""

import bz2
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path

from bdl.errors import InputError

_TEXT_CONTROLS = "\t\n\r\f\x1a"
"""Control characters that files of text have: of lines and pages, and the end of file of DOS."""
_EXAMINED_BYTES = 4096


def read_decompressed(path: Path) -> bytes:
    """Return the content of a file, decompressed if it is of gzip, bzip2, xz, lzma, zstd or zip.

    The first bytes say so. `InputError` if it is damaged, compressed twice or in another way, or
    an archive of several files; `OSError` if it cannot be read.
    """
    content = path.read_bytes()
    for name, (signature, start, decompress) in _FORMATS.items():
        if content.startswith(signature, start):
            content = _decompress(path, name, decompress, content)
            break
    if content[257:262] == b"ustar":
        raise InputError(f"{path} is an archive (tar): unpack it and name a file")
    # also what is left of a file that was compressed twice
    signatures = {name: signature for name, (signature, start, _) in _FORMATS.items() if not start}
    for name, signature in (signatures | _UNREAD_SIGNATURES).items():
        if content.startswith(signature):
            raise InputError(f"{path} is compressed ({name}): unpack it and name a file")
    return content


def _decompress(
    path: Path, name: str, decompress: Callable[[bytes], bytes], content: bytes
) -> bytes:
    try:
        return decompress(content)
    except _Archive as error:
        raise InputError(f"{path} is {error}") from None
    except (
        OSError,
        EOFError,
        RuntimeError,  # a password, or a method of compression that is not known
        ValueError,
        zlib.error,
        lzma.LZMAError,
        zipfile.BadZipFile,
    ):
        raise InputError(
            f"cannot read {path}: it is compressed ({name}) and damaged or of an unknown kind: "
            "unpack it"
        ) from None


class _Archive(Exception):
    """A zip archive has several files; the message says of which kind it is."""


def _decompress_zip(content: bytes) -> bytes:
    with zipfile.ZipFile(BytesIO(content)) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if "[Content_Types].xml" in names:
            raise _Archive("a workbook or a document: save the sheet as CSV")
        if "mimetype" in names and "content.xml" in names:  # of LibreOffice
            raise _Archive("a workbook or a document: save the sheet as CSV")
        # macOS adds one for each file, with its icons and the like
        names = [name for name in names if not name.startswith("__MACOSX/")]
        if not names:
            raise _Archive("a zip archive without a file: name another")
        if len(names) != 1:
            raise _Archive(f"a zip archive of {len(names)} files: unpack it and name one")
        return archive.read(names[0])


def _decompress_zstd(content: bytes) -> bytes:
    import pyarrow

    with pyarrow.CompressedInputStream(pyarrow.BufferReader(content), "zstd") as stream:
        return bytes(stream.read())


_FORMATS: Mapping[str, tuple[bytes, int, Callable[[bytes], bytes]]] = {
    "gzip": (b"\x1f\x8b", 0, gzip.decompress),
    "bzip2": (b"1AY&SY", 4, bz2.decompress),
    "xz": (b"\xfd7zXZ\x00", 0, lzma.decompress),
    "lzma": (b"\x5d\x00\x00", 0, lzma.decompress),
    "zstd": (b"\x28\xb5\x2f\xfd", 0, _decompress_zstd),
    "zip": (b"PK\x03\x04", 0, _decompress_zip),
    "empty zip": (b"PK\x05\x06", 0, _decompress_zip),
}
"""By name, the bytes that distinguish a format, where they start, and its function."""
_UNREAD_SIGNATURES = {
    "Unix compress": b"\x1f\x9d",
    "7-Zip": b"7z\xbc\xaf\x27\x1c",
    "RAR": b"Rar!\x1a",
    "LZ4": b"\x04\x22\x4d\x18",
    "zstd": b"\x50\x2a\x4d\x18",  # with a frame of a program's own
}
"""The first bytes of formats that are not read, by name."""


def check_is_text(path: Path, content: bytes, encoding: str) -> None:
    """Raise `InputError` if a content starts with control characters that no text has.

    Others than these are decoded by an encoding of single bytes, whatever they are.
    """
    if content.startswith(b"PAR1"):
        raise InputError(f"{path} is a Parquet file: say name: parquet")
    start = content[:_EXAMINED_BYTES].decode(encoding, errors="replace")
    if any(character < " " and character not in _TEXT_CONTROLS for character in start):
        raise InputError(
            f"cannot read {path}: it is not {encoding.upper().removesuffix('-SIG')} text: "
            "say its encoding, such as utf-16, or save it as CSV"
        )
