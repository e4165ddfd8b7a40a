#!/usr/bin/env python3
"""The weights of MySQL's collations of Unicode: asks the reference for those of each code point and writes the tables of crates/types/src/collate. charsets.py writes the others.

    collations.py --write            the tables anew (half a minute)
    collations.py --sample           pairs of texts with the reference's answers anew, crates/types/src/collate/sample.txt
    collations.py --check 1000000    so many random texts, in the order of the reference and of `cargo run -p apus-client --example sort_keys`

Weights are facts: WEIGHT_STRING() tells them. A table is a list of runs of code points from 0 on. A run is a number, its count times 8 and its kind, and what the kind says;
numbers have seven bits a byte, the lowest first. Weights are told as the difference to the one before, differences have their sign in the lowest bit.

    0, 1, 2   the code point itself says its weights (UCA: implicit weights from FBC0, FB80, FB40; general_ci: itself)
    3         no weight
    4         a syllable of Hangul: its parts have the weights
    5         one weight each, each one more than the one before: the first
    6         one weight, all the same: it
    7         one code point with as many weights as the count says: they

Where a collation has levels, a second and a third table follow, of the same form; there kinds 0 and 1 are the weights of most: 0020, 0002.
"""

import argparse
import functools
import itertools
import pathlib
import random
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import charsets  # noqa: E402
from lib import answers  # noqa: E402
from lib.harness import ROOT, Scenario, check  # noqa: E402
from lib.mysql import MySql  # noqa: E402

TABLES = ROOT / "crates/types/src/collate"
POINTS = [n for n in range(0x110000) if not 0xD800 <= n < 0xE000]
UCA = {"uca400": "utf8mb4_unicode_ci", "uca520": "utf8mb4_unicode_520_ci", "uca900": "utf8mb4_0900_as_cs"}
IMPLICIT = {0xFBC0: 0, 0xFB80: 1, 0xFB40: 2}
HANGUL = range(0xAC00, 0xD7A4)
# As `Collation::ALL` has them.
ALL = [
    "armscii8_general_ci", "armscii8_bin", "ascii_general_ci", "ascii_bin", "big5_chinese_ci", "big5_bin", "binary", "cp1250_general_ci", "cp1250_croatian_ci",
    "cp1250_bin", "cp1250_polish_ci", "cp1251_general_ci", "cp1251_bulgarian_ci", "cp1251_ukrainian_ci", "cp1251_bin", "cp1251_general_cs", "cp1256_general_ci",
    "cp1256_bin", "cp1257_general_ci", "cp1257_lithuanian_ci", "cp1257_bin", "cp850_general_ci", "cp850_bin", "cp852_general_ci", "cp852_bin", "cp866_general_ci",
    "cp866_bin", "cp932_japanese_ci", "cp932_bin", "dec8_swedish_ci", "dec8_bin", "eucjpms_japanese_ci", "eucjpms_bin", "euckr_korean_ci", "euckr_bin",
    "gb18030_chinese_ci", "gb18030_bin", "gb18030_unicode_520_ci", "gb2312_chinese_ci", "gb2312_bin", "gbk_chinese_ci", "gbk_bin", "geostd8_general_ci",
    "geostd8_bin", "greek_general_ci", "greek_bin", "hebrew_general_ci", "hebrew_bin", "hp8_english_ci", "hp8_bin", "keybcs2_general_ci", "keybcs2_bin",
    "koi8r_general_ci", "koi8r_bin", "koi8u_general_ci", "koi8u_bin", "latin1_swedish_ci", "latin1_german1_ci", "latin1_danish_ci", "latin1_german2_ci",
    "latin1_bin", "latin1_general_ci", "latin1_general_cs", "latin1_spanish_ci", "latin2_general_ci", "latin2_hungarian_ci", "latin2_croatian_ci", "latin2_bin",
    "latin5_turkish_ci", "latin5_bin", "latin7_general_ci", "latin7_estonian_cs", "latin7_general_cs", "latin7_bin", "macce_general_ci", "macce_bin",
    "macroman_general_ci", "macroman_bin", "sjis_japanese_ci", "sjis_bin", "tis620_thai_ci", "tis620_bin", "ucs2_general_ci", "ucs2_bin", "ucs2_unicode_ci",
    "ucs2_unicode_520_ci", "ujis_japanese_ci", "ujis_bin", "utf16_general_ci", "utf16_bin", "utf16_unicode_ci", "utf16_unicode_520_ci", "utf16le_general_ci",
    "utf16le_bin", "utf32_general_ci", "utf32_bin", "utf32_unicode_ci", "utf32_unicode_520_ci", "utf8mb3_general_ci", "utf8mb3_bin", "utf8mb3_unicode_ci",
    "utf8mb3_unicode_520_ci", "utf8mb4_0900_ai_ci", "utf8mb4_general_ci", "utf8mb4_bin", "utf8mb4_unicode_ci", "utf8mb4_unicode_520_ci", "utf8mb4_0900_as_cs",
    "utf8mb4_0900_as_ci", "utf8mb4_0900_bin",
]


def rows(connection, statement):
    cursor = connection.cursor()
    cursor.execute(statement)
    return cursor.fetchall()


def fill(connection, table, texts):
    """A table of texts, numbered from 0 on."""
    connection.query("CREATE DATABASE IF NOT EXISTS weights")
    connection.query("USE weights")
    connection.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, c VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL)")
    numbered = iter(enumerate(texts))
    while part := list(itertools.islice(numbered, 20000)):
        values = ",".join(f"({n},CONVERT(x'{text.encode().hex()}' USING utf8mb4))" for n, text in part)
        connection.query(f"INSERT INTO {table} VALUES {values}")
    connection.commit()


def words(data):
    return [int.from_bytes(data[at:at + 2], "big") for at in range(0, len(data), 2)]


def as_bytes(cell):
    return cell if isinstance(cell, bytes) else cell.encode("latin1")


def weights(connection, collation):
    """Of each code point the levels, each a list of weights."""
    found = rows(connection, f"SELECT id, HEX(WEIGHT_STRING(c COLLATE {collation})) FROM points ORDER BY id")
    out = {}
    for number, text in found:
        levels = [[]]
        for weight in words(bytes.fromhex(text)):
            if weight == 0 and collation.startswith("utf8mb4_0900"):
                levels.append([])
            else:
                levels[-1].append(weight)
        out[POINTS[int(number)]] = levels
    return out


def number(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def difference(n):
    return number(n << 1 if n >= 0 else -n << 1 | 1)


def primary_kind(point, ws):
    if len(ws) == 2 and ws[1] == point & 0x7FFF | 0x8000 and ws[0] - (point >> 15) in IMPLICIT:
        return IMPLICIT[ws[0] - (point >> 15)]
    return 3 if not ws else 5 if len(ws) == 1 else 7


def table(of, kind):
    """`of` tells the weights of a code point."""
    out, last, at = bytearray(), 0, 0
    known = [(point, of(point)) for point in POINTS]
    while at < len(known):
        point, ws = known[at]
        what, count = kind(point, ws), 1
        if what == 7:
            out += number(len(ws) << 3 | 7)
            for weight in ws:
                out += difference(weight - last)
                last = weight
            at += 1
            continue
        while at + count < len(known) and kind(*known[at + count]) == what:
            step = known[at + count][1]
            if what == 5 and step != [ws[0] + count]:
                break
            count += 1
        if what == 5 and count == 1:
            while at + count < len(known) and known[at + count][1] == ws and kind(*known[at + count]) == 5:
                count += 1
            what = 5 if count == 1 else 6
        out += number(count << 3 | what)
        if what in (5, 6):
            out += difference(ws[0] - last)
            last = ws[0] + (count - 1 if what == 5 else 0)
        at += count
    return bytes(out)


def parts(point):
    n = point - 0xAC00
    return [0x1100 + n // 588, 0x1161 + n % 588 // 28] + ([0x11A7 + n % 28] if n % 28 else [])


def is_its_parts(of, point):
    return point in HANGUL and of(point) == [weight for part in parts(point) for weight in of(part)]


def write(connection):
    fill(connection, "points", map(chr, POINTS))
    for name, collation in UCA.items():
        levels = weights(connection, collation)
        primary = lambda point: levels[point][0]  # noqa: E731
        kind = primary_kind
        if name == "uca900":
            check(not any(levels[p][0] == [] and 0x20 in levels[p][1] for p in POINTS), "a second weight of most stands alone")
            kind = lambda point, ws: 4 if is_its_parts(primary, point) else primary_kind(point, ws)  # noqa: E731
        data = [table(primary, kind)]
        if name == "uca900":
            for level, usual in ((1, 0x20), (2, 2)):
                rule = lambda point, ws: 4 if is_its_parts(lambda p: levels[p][level], point) else 0 if ws == [usual] else 3 if not ws else 5 if len(ws) == 1 else 7  # noqa: E731, B023
                data.append(table(lambda point: levels[point][level], rule))  # noqa: B023
        (TABLES / f"{name}.bin").write_bytes(b"".join(data))
        print(name, [len(part) for part in data])
    levels = weights(connection, "utf8mb4_general_ci")
    data = table(lambda point: levels[point][0], lambda point, ws: 0 if ws == [point] else 5)
    (TABLES / "general.bin").write_bytes(data)
    print("general", len(data))


def read_number(data, at):
    n = shift = 0
    while True:
        n |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return n, at


@functools.cache
def points_of(charset):
    """Code points of a character set that has a table."""
    if charset in charsets.BYTES:
        at = charsets.BYTES.index(charset) * 512
        data = (TABLES / "bytes.bin").read_bytes()[at:at + 512]
        return [point for n in range(256) if (point := int.from_bytes(data[2 * n:2 * n + 2], "little")) or n == 0]
    data, at = (TABLES / "codes.bin").read_bytes(), 0
    for _ in range(charsets.WIDE.index(charset)):
        long, at = read_number(data, at)
        at += long
    (_, at), place, found = read_number(data, at), 0, []
    while place < len(POINTS):
        head, at = read_number(data, at)
        if head & 7 != 3:
            _, at = read_number(data, at)
            found += POINTS[place:place + (head >> 3)]
        place += head >> 3
    return found


def alphabets(collation):
    charset = collation.split("_")[0]
    if charset == "ascii":
        return [range(0x80)]
    if charset == "latin1":
        return [range(0x80), range(0xA0, 0x100), [0x20AC, 0x152, 0x153, 0x178, 0x160, 0x81]]
    if charset in charsets.BYTES + charsets.WIDE:
        points = [point for point in points_of(charset) if point != 0x5C]
        scripts = [[p for p in points if first <= p < last] for first, last in ((0x80, 0x250), (0x370, 0x530), (0x530, 0x3000), (0x3000, 0x3400), (0x3400, 0x10000))]
        more = [[0x20, 9, 0x41, 0x61, 0x62], range(0x20, 0x5B)]
        if charset == "gb18030":
            more += [range(0x80, 0x3000), range(0x3400, 0xD800), range(0xE000, 0xFFFE), range(0x10000, 0x20000), range(0x20000, 0x2A000), range(0xE0000, 0x110000)]
        return [points] + more + [script for script in scripts if len(script) > 2]
    some = [range(0x80), range(0x20, 0x7F), [0x20, 9, 0xA0, 0x41, 0x61, 0x62], range(0xA0, 0x250), range(0x300, 0x370), range(0x370, 0x530),
            range(0x530, 0x900), range(0x900, 0xE00), range(0xE00, 0x1000), range(0x1000, 0x1200), range(0x1200, 0x2000), range(0x2000, 0x3000),
            range(0x3000, 0x3400), range(0x3400, 0xAC00), range(0xAC00, 0xD7A4), range(0x1100, 0x1200), range(0xE000, 0xFFFE)]
    if charset not in ("utf8mb3", "ucs2"):
        some += [range(0x10000, 0x20000), range(0x20000, 0x30000), range(0xE0000, 0x110000)]
    return some


def draw(random, some):
    """A text, or a few of one script, so that neighbours meet."""
    own = random.sample(random.choice(some), 2) + [0x20] if random.random() < 0.5 else None
    text = []
    for _ in range(random.choice((0, 1, 2, 2, 3, 3, 4, 5, 6))):
        text.append(random.choice(own or random.choice(some)))
    return "".join(map(chr, text)) + random.choice(("", "", "", " ", "  ", "\t"))


def changed(random, text, some):
    """One that is near."""
    other = list(text)
    for _ in range(random.choice((0, 1, 1, 2))):
        at = random.randint(0, len(other))
        what = random.randrange(5)
        if what == 0 and at < len(other):
            swapped = other[at].swapcase()
            other[at] = swapped if len(swapped) == 1 and any(ord(swapped) in part for part in some[:4]) else other[at]
        elif what == 1:
            other.insert(at, chr(random.choice(random.choice(some))))
        elif what == 2 and at < len(other):
            del other[at]
        elif what == 3:
            other.append(random.choice(" \t a\0"))
        elif at < len(other):
            other[at] = chr(random.choice(random.choice(some)))
    return "".join(other)


def sample(connection):
    lines = []
    for collation in ALL:
        # Most of those of one byte a character differ only in what is written in a table.
        count = 200 if collation.startswith(("utf8", "latin1", "ascii", "binary")) else 40
        seed = random.Random(collation)
        some, charset = alphabets(collation), collation.split("_")[0]
        for _ in range(count):
            a = draw(seed, some)
            b = changed(seed, a, some)
            sides = [f"CONVERT(x'{text.encode().hex()}' USING utf8mb4)" for text in (a, b)]
            if charset == "binary":
                sides = [f"CAST({side} AS BINARY)" for side in sides]
            else:
                sides = [f"CONVERT({side} USING {charset}) COLLATE {collation}" for side in sides]
            [[answer]] = rows(connection, f"SELECT STRCMP({sides[0]}, {sides[1]})")
            lines.append(f"{ALL.index(collation)} {a.encode().hex() or '-'} {b.encode().hex() or '-'} {'=><'[int(answer)]}")
    (TABLES / "sample.txt").write_text("\n".join(lines) + "\n")
    print(len(lines), "pairs")


def our_keys(collation, texts):
    got = subprocess.run(["cargo", "run", "-q", "-p", "apus-client", "--example", "sort_keys", "--", collation], cwd=ROOT, check=True,
                         input="".join(text.encode().hex() + "\n" for text in texts), stdout=subprocess.PIPE, text=True)
    return got.stdout.split("\n")


# ORDER BY of MySQL goes otherwise than its comparisons there: by strokes, with a weight of spaces that its padding has not, up to the first zero byte.
ORDERED_OTHERWISE = {"big5_chinese_ci", "latin7_estonian_cs", "latin7_general_ci", "latin7_general_cs", "tis620_thai_ci"}


def compare_pairs(connection, collation, texts, of):
    """Each text with the one behind it."""
    keys = our_keys(collation, texts)
    answers = rows(connection, f"SELECT a.id, STRCMP({of('a.c')}, {of('b.c')}) FROM texts a JOIN texts b ON b.id = a.id + 1")
    wrong = [(texts[n], texts[n + 1], answer) for n, answer in ((int(n), int(answer)) for n, answer in answers) if (keys[n] > keys[n + 1]) - (keys[n] < keys[n + 1]) != answer]
    print(f"{collation}: {len(answers)} pairs, {len(wrong)} wrong", flush=True)
    for line in wrong[:10]:
        print("   ", *map(ascii, line))
    return len(wrong)


def compare(connection, collation, count):
    seed = random.Random(f"{collation} {count}")
    some, charset = alphabets(collation), collation.split("_")[0]
    texts = []
    while len(texts) < count:
        texts.append(draw(seed, some))
        texts.append(changed(seed, texts[-1], some))
    connection.query("DROP TABLE IF EXISTS weights.texts")
    fill(connection, "texts", texts)
    of = lambda c: f"CAST({c} AS BINARY)" if charset == "binary" else f"CONVERT({c} USING {charset}) COLLATE {collation}"  # noqa: E731
    if collation in ORDERED_OTHERWISE:
        return compare_pairs(connection, collation, texts, of)
    ranks = rows(connection, f"SELECT id, DENSE_RANK() OVER (ORDER BY {of('c')}) FROM texts")
    keys = our_keys(collation, texts)
    order = sorted((int(rank), int(n)) for n, rank in ranks)
    wrong = []
    for (r, a), (s, b) in itertools.pairwise(order):
        if (keys[a] == keys[b]) != (r == s) or keys[a] > keys[b]:
            wrong.append((texts[a], texts[b], r == s, keys[a], keys[b]))
    print(f"{collation}: {len(texts)} texts, {order[-1][0]} values, {len(wrong)} wrong", flush=True)
    for line in wrong[:10]:
        print("   ", *map(ascii, line))
    return len(wrong)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("collations", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--check", type=int)
    parser.add_argument("--socket", help="of a reference that runs")
    arguments = parser.parse_args()
    scenario = Scenario("collations")
    with scenario.cleanup:
        where = arguments.socket or str(scenario.cleanup.enter_context(MySql(scenario.directory / "m")).socket)
        connection = answers.connect(unix_socket=where)
        connection.query("DROP DATABASE IF EXISTS weights")
        if arguments.write:
            write(connection)
        if arguments.sample:
            sample(connection)
        if arguments.check:
            wrong = [compare(connection, name, arguments.check) for name in arguments.collations or ALL]
            check(not any(wrong), f"{sum(wrong)} neighbours in another order than the reference's")


if __name__ == "__main__":
    main()
