#!/usr/bin/env python3
"""MySQL's character sets: asks the reference for every character, and for the weights of those collations that have no code points to go by.

    charsets.py                      the files anew (two minutes); --socket of a reference that runs
    charsets.py big5 gbk             these character sets alone: told, nothing is written

For crates/types/src/collate, which keys and orders are made from:

    bytes.bin    for each character set of one byte, as `Charset::ALL` has them, the code points of its 256 bytes, two bytes each, the low one first (0 behind the first: none);
                 then for each of their collations but `_bin`, as `Collation::ALL` has them, the weights of the 256 bytes, and once more the second ones of latin1_german2_ci
    codes.bin    for each one of several bytes how long its part is, its code points with their codes, in runs (collations.py says how; kind 3: none); then how many weigh otherwise in its first
                 collation, and which: the difference to the code point before, and the code that they weigh as
    gbk.bin, gb18030.bin    the weights of gbk_chinese_ci, numbered in their order, and of gb18030_chinese_ci, in runs

Codes are told as numbers, of gb18030 those of four bytes as their place among them and 65536. WEIGHT_STRING() of big5_chinese_ci is that of ORDER BY without an index, which
MySQL does not compare by; two bytes weigh as they are there.

For crates/sql/src/wire/foreign: read.txt, a line for what is read otherwise than it is written (a name, CODE[-CODE], the code point or `-`), and digests.txt, a line for each
character set, for the unit test: how many sequences are read and the beginning of the SHA-256 of them with their code points, the same of the code points that are written.
"""

import argparse
import hashlib
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import collations  # noqa: E402
from lib import answers  # noqa: E402
from lib.harness import ROOT, Scenario, check  # noqa: E402
from lib.mysql import MySql  # noqa: E402

FOLDER = ROOT / "crates/sql/src/wire/foreign"
TABLES = ROOT / "crates/types/src/collate"
# As `Charset::ALL` has them.
BYTES = [
    "armscii8", "ascii", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "dec8", "geostd8", "greek", "hebrew", "hp8", "keybcs2", "koi8r", "koi8u",
    "latin1", "latin2", "latin5", "latin7", "macce", "macroman", "tis620",
]
WIDE = ["big5", "cp932", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis"]
# The code of a backslash in sjis is told to clients; in a column it is one byte.
WRITTEN_ALONE = {("sjis", 0x5C)}


def rows(connection, statement):
    cursor = connection.cursor()
    cursor.execute(statement)
    return cursor.fetchall()


def read(connection, name):
    """Code points by what is read as them."""
    found = {}

    def ask(sequence, condition):
        text = f"CONVERT(CONVERT({sequence} USING {name}) USING utf32)"
        for code, point in rows(connection, f"SELECT HEX({sequence}), HEX({text}) FROM n WHERE {condition} AND LENGTH({text}) = 4"):
            if point != "0000003F" or code == "3F":
                found[int(code, 16)] = int(point, 16)

    ask("UNHEX(HEX(n))", "n < 256")
    if name in WIDE:
        alone = {byte for byte in found if byte >= 0x80}
        ask("UNHEX(HEX(n))", "n >= 0x8000")
        for code in [code for code in found if code > 0xFF and code >> 8 in alone]:
            del found[code]
    if name in ("ujis", "eucjpms"):
        ask("CONCAT(0x8F, UNHEX(HEX(n)))", "n >= 0x8000")
    for first in range(0x81, 0xFF) if name == "gb18030" else ():
        ask(f"CONCAT(0x{first:X}, UNHEX(HEX(0x30 + n DIV 1260)), UNHEX(HEX(0x81 + n DIV 10 % 126)), UNHEX(HEX(0x30 + n % 10)))", "n < 12600")
    return found


def written(connection, name):
    """What is written by code points."""
    found = {}
    # Beyond the first plane the others have nothing; the reference takes some of tis620 for the characters with the same last 16 bits.
    for plane in range(17 if name == "gb18030" else 1):
        character = f"CONVERT(UNHEX(LPAD(HEX(n + {plane << 16}), 8, '0')) USING utf32)"
        for point, code in rows(connection, f"SELECT n + {plane << 16}, HEX(CONVERT({character} USING {name})) FROM n"):
            if code and (code != "3F" or int(point) == 0x3F):
                found[int(point)] = int(code, 16)
    return found


def runs(found):
    """`CODE[-CODE] POINT` of neighbours."""
    out = []
    for code, point in sorted(found.items()):
        if out and code == out[-1][1] + 1 and point == (out[-1][2] + code - out[-1][0] if out[-1][2] and point else out[-1][2]):
            out[-1][1] = code
        else:
            out.append([code, code, point])
    return [f"{a:X} " + (f"{point:X}" if point else "-") if a == b else f"{a:X}-{b:X} " + (f"{point:X}" if point else "-") for a, b, point in out]


def read_otherwise(theirs, writes):
    mine = {}
    for point, code in sorted(writes.items()):
        mine.setdefault(code, point)
    codes = theirs.keys() | mine.keys()
    return {code: theirs.get(code, 0) for code in codes if theirs.get(code) != mine.get(code)}


def digest(pairs):
    sha = hashlib.sha256()
    for one, other in sorted(pairs.items()):
        sha.update(one.to_bytes(4, "big") + other.to_bytes(4, "big"))
    return f"{len(pairs)} {sha.hexdigest()[:16]}"


def order_of(name):
    """The collations of a character set but `_bin`, as `Collation::ALL` has them."""
    return [collation for collation in collations.ALL if re.match(rf"{name}_(?!bin)", collation)]


def weights_of_bytes(connection, name, points):
    """Of each collation the weights of all bytes."""
    out = b""
    for collation in order_of(name):
        if collation == "tis620_thai_ci":
            continue
        found = {int(n): bytes.fromhex(text) for n, text in rows(connection, f"SELECT n, HEX(WEIGHT_STRING(CONVERT(UNHEX(LPAD(HEX(n), 2, '0')) USING {name}) COLLATE {collation})) FROM n WHERE n < 256") if text}
        found = [found.get(n, bytes([n])) for n in range(256)]
        check(all(len(w) == 1 or collation == "latin1_german2_ci" and len(w) == 2 for w in found), f"{collation} has weights of a byte")
        out += bytes(w[0] for w in found)
        if collation == "latin1_german2_ci":
            out += bytes(w[1] if len(w) > 1 else 0 for w in found)
    return out


def linear(code):
    a, b, c, d = code.to_bytes(4, "big")
    return ((a - 0x81) * 10 + b - 0x30) * 1260 + (c - 0x81) * 10 + d - 0x30


def number_of(code):
    return code if code <= 0xFFFFFF else 0x10000 + linear(code)


def in_runs(found):
    return collations.table(lambda point: [found[point]] if point in found else [], lambda point, ws: 5 if ws else 3)


def weights(connection, name, collation):
    """Of each code point the weight, as bytes."""
    out = {}
    for plane in range(17 if name == "gb18030" else 1):
        character = f"CONVERT(CONVERT(UNHEX(LPAD(HEX(n + {plane << 16}), 8, '0')) USING utf32) USING {name})"
        for point, code, weight in rows(connection, f"SELECT n + {plane << 16}, HEX({character}), HEX(WEIGHT_STRING({character} COLLATE {collation})) FROM n"):
            if code and (code != "3F" or int(point) == 0x3F):
                out[int(point)] = bytes.fromhex(weight)
    return out


def weight_of_gb18030(weight):
    value = int.from_bytes(weight, "big")
    if len(weight) < 4:
        return value
    value &= 0xFFFFFF
    # Those that stand in the order of their sounds come behind all code points.
    return 0x10000 + (value if value < 0xA00000 else value - 0xA00000 + 0x140000)


def codes_of(connection, name, writes):
    """The part of a character set in codes.bin, and the file of its first collation if it has one."""
    numbers = {point: number_of(code) for point, code in writes.items()}
    out, first = in_runs(numbers), weights(connection, name, order_of(name)[0])
    if name in ("gbk", "gb18030"):
        own = {point: int.from_bytes(weight, "big") if name == "gbk" else weight_of_gb18030(weight) for point, weight in first.items()}
        if name == "gbk":
            ranks = {weight: n for n, weight in enumerate(sorted({weight for weight in own.values() if weight >= 0x80}), 0x80)}
            own = {point: ranks.get(weight, weight) for point, weight in own.items()}
        return out + collations.number(0), in_runs(own)
    others = {point: int.from_bytes(weight, "big") for point, weight in first.items() if not (name == "big5" and len(weight) == 2)}
    others = sorted((point, weight) for point, weight in others.items() if weight != numbers[point] and (name, point) not in WRITTEN_ALONE)
    print(name, "weigh otherwise:", " ".join(f"{point:x}:{numbers[point]:x}>{weight:x}" for point, weight in others if not 0x61 <= point <= 0x7A))
    out, last = out + collations.number(len(others)), 0
    for point, weight in others:
        out += collations.number(point - last) + collations.number(weight)
        last = point
    return out, None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("charsets", nargs="*")
    parser.add_argument("--socket", help="of a reference that runs")
    arguments = parser.parse_args()
    scenario = Scenario("charsets")
    with scenario.cleanup:
        where = arguments.socket or str(scenario.cleanup.enter_context(MySql(scenario.directory / "m")).socket)
        connection = answers.connect(unix_socket=where)
        for statement in ("DROP DATABASE IF EXISTS d", "CREATE DATABASE d", "USE d", "SET cte_max_recursion_depth = 65536, max_error_count = 0", "CREATE TABLE n (n INT PRIMARY KEY)"):
            rows(connection, statement)
        rows(connection, "INSERT INTO n WITH RECURSIVE a (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM a WHERE n < 65535) SELECT n FROM a")
        points, orders, wide, differ, digests, own = b"", b"", b"", [], [], {}
        for name in arguments.charsets or BYTES + WIDE:
            theirs, writes = read(connection, name), written(connection, name)
            digests += [f"{name} {digest(theirs)} {digest(writes)}"] if name != "ascii" else []
            inside = {point: code for point, code in writes.items() if (name, point) not in WRITTEN_ALONE} | {point: point for of, point in WRITTEN_ALONE if of == name}
            differ += [f"{name} {line}" for line in runs(read_otherwise(theirs, inside))]
            check(all(inside.get(n) == n for n in range(128)), f"{name} has ASCII")
            if name in BYTES:
                of_bytes = {code: point for point, code in inside.items()}
                check(len(of_bytes) == len(inside), f"{name} writes each byte for one character")
                points += b"".join(of_bytes.get(n, 0).to_bytes(2, "little") for n in range(256))
                orders += weights_of_bytes(connection, name, of_bytes)
            else:
                part, order = codes_of(connection, name, inside)
                wide += collations.number(len(part)) + part
                if order:
                    own[name] = order
            print(name, len(theirs), len(writes), sum(line.startswith(name + " ") for line in differ), len(wide), flush=True)
        if arguments.charsets:
            return
        (TABLES / "bytes.bin").write_bytes(points + orders)
        (TABLES / "codes.bin").write_bytes(wide)
        for name, order in own.items():
            (TABLES / f"{name}.bin").write_bytes(order)
        (FOLDER / "read.txt").write_text("\n".join(differ) + "\n")
        (FOLDER / "digests.txt").write_text("\n".join(digests) + "\n")
        print({name: len(order) for name, order in own.items()}, len(points), len(orders), len(wide))


if __name__ == "__main__":
    main()
