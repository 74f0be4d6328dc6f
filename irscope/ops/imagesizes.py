"""Height and width of an encoded image, read from its header without decoding it."""

from __future__ import annotations

_JPEG_2000 = b"\x00\x00\x00\x0cjP  \r\n\x87\n"
_TIFF_WIDTH, _TIFF_HEIGHT = 256, 257


def encoded_size(data: bytes) -> tuple[int, int] | None:
    """Height and width of a PNG, BMP, JPEG, JPEG 2000, WebP, TIFF or portable image; None for anything else."""
    try:
        return _image_size(data)
    except (IndexError, ValueError):
        return None


def _image_size(data: bytes) -> tuple[int, int] | None:
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return _header_integer(data, 20, 4, "big"), _header_integer(data, 16, 4, "big")
    if data[:2] == b"BM":
        height = int.from_bytes(data[22:26], "little", signed=True)
        return abs(height), _header_integer(data, 18, 4, "little")
    if data[:2] == b"\xff\xd8":
        return _jpeg(data)
    if data[:12] == _JPEG_2000:
        header = data.index(b"ihdr")
        return _header_integer(data, header + 4, 4, "big"), _header_integer(data, header + 8, 4, "big")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    if data[:4] in (b"II*\x00", b"MM\x00*"):
        return _tiff(data)
    return _portable(data) if data[:2] in (b"P1", b"P2", b"P3", b"P4", b"P5", b"P6") else None


def _header_integer(data: bytes, place: int, count: int, order: str) -> int:
    if place + count > len(data):
        raise IndexError("the header ends too early")
    return int.from_bytes(data[place : place + count], "big" if order == "big" else "little")


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """From the first frame header (SOF0 to SOF15, without the tables whose markers lie between)."""
    place = 2
    while data[place] == 0xFF:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _header_integer(data, place + 5, 2, "big"), _header_integer(data, place + 7, 2, "big")
        place += 2 + _header_integer(data, place + 2, 2, "big")
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8 ":
        return _header_integer(data, 28, 2, "little") & 0x3FFF, _header_integer(data, 26, 2, "little") & 0x3FFF
    if kind == b"VP8L":
        bits = _header_integer(data, 21, 4, "little")
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    if kind == b"VP8X":
        return _header_integer(data, 27, 3, "little") + 1, _header_integer(data, 24, 3, "little") + 1
    return None


def _tiff(data: bytes) -> tuple[int, int] | None:
    order = "little" if data[:2] == b"II" else "big"
    directory = _header_integer(data, 4, 4, order)
    found: dict[int, int] = {}
    for entry in range(_header_integer(data, directory, 2, order)):
        place = directory + 2 + 12 * entry
        short = _header_integer(data, place + 2, 2, order) == 3
        found[_header_integer(data, place, 2, order)] = _header_integer(data, place + 8, 2 if short else 4, order)
    if _TIFF_WIDTH in found and _TIFF_HEIGHT in found:
        return found[_TIFF_HEIGHT], found[_TIFF_WIDTH]
    return None


def _portable(data: bytes) -> tuple[int, int] | None:
    """Numbers separated by white space, with comments up to the end of a line."""
    fields = b" ".join(line.split(b"#")[0] for line in data[2:4096].split(b"\n")[:64]).split()
    return int(fields[1]), int(fields[0])
