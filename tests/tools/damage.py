"""Damaged and hostile model files: byte by byte, and with a checksum that fits the damage."""

import hashlib
import io
import json
import struct
import zipfile

import numpy as np


def scratch(data: bytes, random: np.random.Generator) -> bytes:
    """The file with a few bytes changed, cut, doubled, put in, set to zero, or to the ends of what a count can be."""
    content = bytearray(data)
    for _ in range(int(random.integers(1, 4))):
        a, b = sorted(int(x) for x in random.integers(0, len(content) + 1, size=2))
        kind = random.integers(8)
        if kind == 0 and content:
            content[a % len(content)] = int(random.integers(256))
        elif kind == 1 and content:
            content[a % len(content)] ^= 1 << int(random.integers(8))
        elif kind == 2:
            del content[a:]
        elif kind == 3:
            del content[a : min(b, a + 64)]
        elif kind == 4:
            content[a:a] = content[a : min(b, a + 64)]
        elif kind == 5:
            content[a : a + 64] = bytes(len(content[a : a + 64]))
        elif kind == 6:
            count = (0, 1, 2**31 - 1, 2**31, 2**32 - 1)[random.integers(5)]
            content[a : a + 4] = struct.pack("<I", count)
        else:
            content[a:a] = random.bytes(int(random.integers(1, 9)))
    return bytes(content)


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=(1, 0))
    return stream.getvalue()


def signed(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED, salt: bytes = b"") -> bytes:
    """An archive whose checksum fits its members, whatever they are; with some salt it does not fit."""
    digest = hashlib.sha256(salt)
    for name, content in members.items():
        if name != "checksum.npy":
            digest.update(name.encode() + content)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members.items():
            if name != "checksum.npy":
                archive.writestr(name, content)
        archive.writestr("checksum.npy", npy(np.frombuffer(digest.digest(), np.uint8)))
    return stream.getvalue()


def npy_head(count: int) -> bytes:
    """The head of an array of that many doubles, without the doubles."""
    stream = io.BytesIO()
    head = np.lib.format.header_data_from_array_1_0(np.zeros(1)) | {"shape": (count,)}
    np.lib.format.write_array_header_1_0(stream, head)
    return stream.getvalue()


def claiming(members: dict[str, bytes], name: str, count: int) -> bytes:
    """An archive in which one member claims, in its shape and in the directory, to hold that many doubles."""
    head = npy_head(count)
    data = bytearray(signed(members | {name: head}))
    entry = data.index(b"PK\x01\x02")
    while data[entry + 46 : entry + 46 + len(name)] != name.encode():
        entry = data.index(b"PK\x01\x02", entry + 4)
    data[entry + 20 : entry + 28] = struct.pack("<II", *[len(head) + 8 * count] * 2)
    return bytes(data)


def header_of(data: bytes) -> dict:
    return json.loads(np.lib.format.read_array(io.BytesIO(members_of(data)["header.npy"])).tobytes())


def with_header(data: bytes, header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return signed(members_of(data) | {"header.npy": npy(np.frombuffer(text, np.uint8))})


_STRANGE = (
    None,
    True,
    -1,
    10**30,
    1e308,
    "",
    "x" * 50,
    "__class__",
    "mssl.files.models.save",
    "os.system",
    [],
    {},
    {"#": "array"},
)


_CHANGES = (
    lambda a: a.astype(np.float32),
    lambda a: a.astype(np.int64),
    lambda a: a.astype("U8"),
    lambda a: a.astype(complex),
    lambda a: np.full(a.shape, np.nan),
    lambda a: a.ravel(),
    lambda a: a[..., None],
    lambda a: a[:1],
    lambda a: a[:0],
)


def _changed(content: bytes, random: np.random.Generator) -> bytes:
    """An array of another kind or shape; the same where it cannot be one."""
    array = np.lib.format.read_array(io.BytesIO(content))
    try:
        with np.errstate(all="ignore"):
            return npy(np.ascontiguousarray(_CHANGES[int(random.integers(len(_CHANGES)))](array)))
    except (ValueError, TypeError, IndexError):
        return content


def forge(data: bytes, random: np.random.Generator) -> bytes:
    """The file with one value of its header, one array or the start of one replaced, and signed again."""
    members = members_of(data)
    what = random.integers(4)
    if what < 2:
        name = str(random.choice([key for key in members if key != "checksum.npy"]))
        if what and name != "header.npy":
            return signed(members | {name: _changed(members[name], random)})
        content = bytearray(members[name])
        for _ in range(int(random.integers(1, 4))):
            content[int(random.integers(min(len(content), 140)))] = int(random.integers(256))
        return signed(members | {name: bytes(content)})
    header = header_of(data)
    node, steps = header, int(random.integers(2, 14))
    for _ in range(steps):
        keys = list(node) if isinstance(node, dict) else range(len(node))
        if not keys:
            break
        key = keys[int(random.integers(len(keys)))]
        child = node[key]
        if not isinstance(child, dict | list) or not child or random.integers(8) == 0:
            strange = _STRANGE[int(random.integers(len(_STRANGE)))]
            if isinstance(node, dict) and random.integers(4) == 0:
                node[str(strange)[:20]] = node.pop(key)
            else:
                node[key] = strange
            break
        node = child
    return with_header(data, header)
