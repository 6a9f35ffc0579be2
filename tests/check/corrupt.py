# SPDX-License-Identifier: GPL-2.0-or-later
"""Metadata in an image file, by the names of format.h; checksums are made right again.

    cache = Cache(path)
    with cache.map_leaf(3) as leaf:
        leaf["oblock", 5] += 1
"""
import functools
import re
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[1] / "format/golden.txt"
SECTOR = 512
BLOCK = 4096


@functools.cache
def layout() -> tuple[dict[str, int], dict[str, dict[str, tuple[int, int]]], dict[str, int]]:
    """Constants, fields and sizes of structs: golden.txt is what the compiler says."""
    constants, structs, sizes = {}, {}, {}
    for line in GOLDEN.read_text().splitlines():
        if m := re.match(r"constant (\w+) (\w+)", line):
            constants[m[1]] = int(m[2], 16)
        elif m := re.match(r"struct (\w+) size (\d+)", line):
            fields = structs.setdefault(m[1], {})
            sizes[m[1]] = int(m[2])
        elif m := re.match(r"  (\w+) offset (\d+) size (\d+)", line):
            fields[m[1]] = int(m[2]), int(m[3])
    return constants, structs, sizes


def constant(name: str) -> int:
    return layout()[0][f"HYBRID_{name}"]


@functools.cache
def _crc_table() -> list[int]:
    table = []
    for c in range(256):
        for _ in range(8):
            c = c >> 1 ^ 0x82f63b78 if c & 1 else c >> 1
        table.append(c)
    return table


def crc32c(data: bytes) -> int:
    table, crc = _crc_table(), 0xffffffff
    for b in data:
        crc = crc >> 8 ^ table[(crc ^ b) & 0xff]
    return crc ^ 0xffffffff


# The size of one element of what are arrays.
ELEMENT = {"index_generation": 2, "leaf_generation": 2, "oblock": 8, "valid": 8, "dirty": 8,
           "instance": 4, "hint": 1}


class Block:
    """One metadata block, or a whole entry of the journal; written when the `with` ends."""

    def __init__(self, path: Path, sector: int, struct: str, size: int = BLOCK):
        self.path, self.sector, self.struct = path, sector, struct
        self.seal = True
        with open(path, "rb") as f:
            f.seek(sector * SECTOR)
            self.data = bytearray(f.read(size))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.seal:
            at = self._crc_at()
            self.data[at:at + 4] = bytes(4)
            self.data[at:at + 4] = crc32c(self.data).to_bytes(4, "little")
        with open(self.path, "r+b") as f:
            f.seek(self.sector * SECTOR)
            f.write(self.data)

    def _crc_at(self) -> int:
        structs = layout()[1]
        return structs.get(self.struct, {}).get("crc", structs["hybrid_block_header"]["crc"])[0]

    def place(self, field: str, index: int | None = None) -> tuple[int, int]:
        """Offset and size of "field", "struct.field" within this one, or of element `index`."""
        _, structs, sizes = layout()
        if "." in field:		# entry.name, cache.set_size: a struct inside this one
            outer, field = field.split(".")
            record = "hybrid_intent_record" if self.struct == "hybrid_intent" else "hybrid_record"
            inner = {"entry": "hybrid_volume_entry", "record": record}.get(outer, f"hybrid_sb_{outer}")
            start = structs[self.struct][outer][0] + (index or 0) * sizes[inner]
            offset, size = structs[inner][field]
            return start + offset, size
        if field in structs["hybrid_block_header"] and field not in structs[self.struct]:
            return structs["hybrid_block_header"][field]
        offset, size = structs[self.struct][field]
        if index is None:
            return offset, size
        return offset + index * ELEMENT[field], ELEMENT[field]

    def __getitem__(self, key) -> int:
        offset, size = self.place(*(key if isinstance(key, tuple) else (key,)))
        return int.from_bytes(self.data[offset:offset + size], "little")

    def __setitem__(self, key, value: int | bytes) -> None:
        offset, size = self.place(*(key if isinstance(key, tuple) else (key,)))
        if isinstance(value, int):
            value = value.to_bytes(size, "little")
        self.data[offset:offset + size] = value.ljust(size, b"\0")

    def spoil(self) -> None:
        """One bit is another; the checksum notices."""
        self.seal = False
        self.data[-1] ^= 1


class Member:
    """The superblocks of any member."""

    def __init__(self, path: Path):
        self.path = Path(path)

    def superblock(self, copy: int) -> Block:
        sectors = self.path.stat().st_size // BLOCK * 8
        at = constant("SB_SECTOR")
        return Block(self.path, sectors - at if copy else at, "hybrid_superblock")

    def set(self, field: str, value: int | bytes) -> None:
        """In both copies."""
        for copy in range(2):
            with self.superblock(copy) as sb:
                sb[field] = value

    def lost_map(self, copy: int, chunks: bytes):
        """Of the smallest chunks there can be; superblock and map say 1 is its generation."""
        with self.superblock(copy) as sb:
            sb["origin.lost"] = 1
        blocks = 1 + -(-sb["origin.data_sectors"] // 8 // (8 * BLOCK))
        with Block(self.path, sb.sector + 8, "hybrid_lost_map", blocks * BLOCK) as lost:
            lost["magic"], lost["number"], lost["generation"] = constant("LOST_MAGIC"), copy, 1
            lost["count"], lost["blocks"], lost["chunk_shift"] = sum(map(int.bit_count, chunks)), blocks, 3
            for field in ("volume_uuid", "instance", "data_sectors"):
                lost[field] = sb[f"origin.{field}"]
            for field in ("pool_uuid", "member_uuid"):
                lost[field] = sb[field]
            lost.data[4096:4096 + len(chunks)] = chunks


class Cache(Member):
    """... and what the current root of a cache device names."""

    def geometry(self, field: str) -> int:
        return self.superblock(0)[f"cache.{field}"]

    def _area(self, start: str, nr: int, size: int, generation: int) -> int:
        return self.geometry(start) + 8 * ((generation & 1) * size + nr)

    def root(self, other: bool = False) -> Block:
        """The current one, or the other one."""
        roots = [Block(self.path, self._area("root_sector", 0, 1, area), "hybrid_root")
                 for area in range(2)]
        roots.sort(key=lambda r: r["generation"])
        return roots[not other]

    def index(self, nr: int) -> Block:
        generation = self.root()["index_generation", nr]
        return Block(self.path, self._area("index_sector", nr, self.geometry("nr_index"),
                                           generation), "hybrid_index")

    def leaf(self, nr: int, struct: str) -> Block:
        per = constant("INDEX_LEAVES")
        generation = self.index(nr // per)["leaf_generation", nr % per]
        return Block(self.path, self._area("leaf_sector", nr, self.geometry("nr_leaves"),
                                           generation), struct)

    def volumes(self, volume: int) -> Block:
        """The leaf with the entry of this volume."""
        return self.leaf(volume // constant("VOLUMES_PER_LEAF"), "hybrid_volume_leaf")

    def map_leaf(self, nr: int) -> Block:
        """The nr-th of the map."""
        return self.leaf(constant("VOLUME_LEAVES") + nr, "hybrid_map_leaf")

    def written_leaves(self) -> list[int]:
        """Those of the map that were ever written."""
        per, found = constant("INDEX_LEAVES"), []
        indexes = {}
        for nr in range(constant("VOLUME_LEAVES"), self.geometry("nr_leaves")):
            if nr // per not in indexes:
                written = self.root()["index_generation", nr // per]
                indexes[nr // per] = self.index(nr // per) if written else None
            block = indexes[nr // per]
            if block and block["leaf_generation", nr % per]:
                found.append(nr - constant("VOLUME_LEAVES"))
        return found

    def intents(self) -> list[Block]:
        """The ring's, from the root's tail on, as far as none is missing."""
        root, found = self.root(), []
        for n in range(root["intent_tail"], root["intent_tail"] + self.geometry("intent_blocks")):
            sector = self.geometry("intent_sector") + 8 * (n % self.geometry("intent_blocks"))
            block = Block(self.path, sector, "hybrid_intent")
            if (block["magic"], block["number"], block["epoch"]) != (
                    constant("INTENT_MAGIC"), n, root["epoch"]):
                break
            found.append(block)
        return found

    def intended(self, intent: Block) -> int:
        """The first sector of the data under an intent."""
        mask = intent["record.granules", 0]
        granule = (mask & -mask).bit_length() - 1
        return (self.geometry("data_sector") + intent["record.where", 0] * self.geometry("block_sectors")
                + granule * self.geometry("granule_sectors"))

    def entries(self) -> list[Block]:
        """The journal's, from the root's tail on."""
        root, found = self.root(), []
        n, ring = root["journal_tail"], self.geometry("journal_blocks")
        while True:
            limit = min(ring // 8, constant("JOURNAL_ENTRY_BLOCKS"))
            if n % ring + limit > ring:
                n += ring - n % ring
            sector = self.geometry("journal_sector") + 8 * (n % ring)
            block = Block(self.path, sector, "hybrid_journal_entry")
            if (block["magic"], block["number"], block["epoch"]) != (
                    constant("JOURNAL_MAGIC"), n, root["epoch"]):
                return found
            found.append(Block(self.path, sector, "hybrid_journal_entry",
                               block["blocks"] * BLOCK))
            n += block["blocks"]
