// Prisma Client with its adapter for MySQL: nested writes, relations, pages, groups, JSON, upserts, raw queries, its codes of errors, transactions.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const { PrismaMariaDb } = require("@prisma/adapter-mariadb");
const { PrismaClient, Prisma } = require(path.join(process.env.NODE_PATH, "..", "prisma", "client"));
const { same, refused, write, start } = require("./common");

const BORN = new Date("1970-02-28T01:02:03.456Z");
const MOST = 18446744073709551615n;

async function migrate(db) {
  const text = fs.readFileSync(path.join(__dirname, "prisma", "migration.sql"), "utf8").replace(/^--.*$/gm, "");
  for (const statement of text.split(";\n").filter((part) => part.trim())) await db.$executeRawUnsafe(statement);
}

async function fill(db) {
  for (let n = 0; n < 20; n++) {
    const books = [...Array(25).keys()].map((b) => ({ title: `Book ${b}`, price: b % 20 }));
    await db.author.create({ data: { name: `Author ${n}`, extra: { n, list: [n, "x"] }, books: { createMany: { data: books } } } });
  }
  const made = await db.author.create({
    data: {
      name: "Ærøskøbing ✈",
      born: BORN,
      extra: { deep: { n: 3.5 } },
      books: { create: [{ title: "One", price: "12.50", cover: Buffer.from([0, 255]), sold: MOST, kind: "sound", tags: { create: [{ slug: "a" }, { slug: "b" }] } }] },
    },
    include: { books: { include: { tags: { orderBy: { slug: "desc" } } } } },
  });
  const [book] = made.books;
  same([made.born, made.extra, String(book.price), [...book.cover], book.sold, book.ok, book.kind, book.tags.map((t) => t.slug)],
    [BORN, { deep: { n: 3.5 } }, "12.5", [0, 255], MOST, true, "sound", ["b", "a"]], "an author with all that is his");
  return { author: made.id, book: book.id };
}

async function read(db) {
  const some = { price: { gte: 3, lte: 7 }, OR: [{ author: { name: { startsWith: "Author 1" } } }, { author: null }] };
  const page = await db.book.findMany({ where: some, orderBy: [{ price: "desc" }, { id: "asc" }], skip: 10, take: 10, include: { author: true } });
  same([await db.book.count({ where: some }), page.length, String(page[0].price), page[0].author.name.slice(0, 7)], [77, 10, "7", "Author "], "a page");
  const after = await db.book.findMany({ where: some, orderBy: [{ price: "desc" }, { id: "asc" }], cursor: { id: page[9].id }, skip: 1, take: 3 });
  same([after.length, after.some((b) => page.some((p) => p.id === b.id))], [3, false], "the page after it");
  const totals = await db.book.groupBy({ by: ["kind"], _count: true, _sum: { price: true }, having: { price: { _sum: { gt: 5 } } }, orderBy: { kind: "asc" } });
  same(totals.map((t) => [t.kind, t._count, String(t._sum.price)]), [["paper", 500, "4000"], ["sound", 1, "12.5"]], "totals");
  const dear = await db.author.findMany({ where: { books: { some: { price: { gt: 18 } } } }, select: { name: true, _count: { select: { books: true } } }, orderBy: { books: { _count: "desc" } }, take: 2 });
  same(dear.map((a) => a._count.books), [25, 25], "by what belongs to them");
  same((await db.author.findMany({ where: { books: { none: {} } } })).length, 0, "nobody without books");
  same((await db.author.findMany({ where: { extra: { path: "$.deep.n", equals: 3.5 } } })).length, 1, "by a path of JSON");
  same((await db.author.findMany({ where: { extra: { path: "$.list", array_contains: "x" } } })).length, 20, "by a member of a list");
  same((await db.book.findMany({ distinct: ["title"], where: { title: { in: ["Book 1", "Book 2"] } } })).length, 2, "distinct");
  const raw = await db.$queryRaw`SELECT COUNT(*) n, SUM(price) s, MAX(sold) m FROM books WHERE price > ${3}`;
  same([raw[0].n, String(raw[0].s), raw[0].m], [341n, "3772.5", MOST], "a raw query");
}

async function change(db, { author, book }) {
  same(await db.book.updateMany({ where: { title: "Book 1" }, data: { stock: { increment: 2 }, text: "ü".repeat(50_000) } }), { count: 20 }, "rows changed");
  const extra = await db.author.upsert({ where: { name: "Author 3" }, update: { extra: [1, 2] }, create: { name: "Author 3" } });
  same([extra.extra, (await db.author.upsert({ where: { name: "new" }, update: {}, create: { name: "new", extra: Prisma.DbNull } })).extra], [[1, 2], null], "upserts");
  same(await db.tag.createMany({ data: [{ slug: "a" }, { slug: "c" }], skipDuplicates: true }), { count: 1 }, "of two tags one is new");
  await db.book.update({ where: { id: book }, data: { tags: { connectOrCreate: { where: { slug: "d" }, create: { slug: "d" } }, disconnect: { slug: "b" } } } });
  same((await db.book.findUnique({ where: { id: book }, include: { tags: { orderBy: { slug: "asc" } } } })).tags.map((t) => t.slug), ["a", "d"], "its tags");
  const code = async (action, what) => (await refused(action, what)).code;
  same(await code(() => db.tag.create({ data: { slug: "a" } }), "a tag twice"), "P2002", "1062");
  same(await code(() => db.book.create({ data: { title: "Nobody's", authorId: 999999n } }), "nobody's book"), "P2003", "1452");
  same(await code(() => db.author.create({ data: { name: "x".repeat(100) } }), "a long name"), "P2000", "1406");
  same(await code(() => db.author.findUniqueOrThrow({ where: { id: 0n } }), "nobody"), "P2025", "no row");
  const negative = await refused(() => db.book.update({ where: { id: book }, data: { stock: -1 } }), "a negative stock");
  same(negative.meta.driverAdapterError.cause.originalCode, "3819", "3819");
  const undone = await refused(() => db.$transaction(async (tx) => {
    await tx.tag.create({ data: { slug: "goes" } });
    same((await tx.$queryRaw`SELECT slug FROM tags WHERE slug = 'goes' FOR UPDATE NOWAIT`).length, 1, "a locked row");
    throw new Error("on purpose");
  }, { isolationLevel: "RepeatableRead" }), "a transaction");
  same([undone.message, await db.tag.findUnique({ where: { slug: "goes" } })], ["on purpose", null], "what is left");
  same(await db.$transaction([db.book.count(), db.author.count(), db.tag.deleteMany({ where: { slug: "c" } })]), [501, 22, { count: 1 }], "several at once");
  await db.author.delete({ where: { id: author } });
  same(await db.book.findUnique({ where: { id: book } }), null, "what went with its author");
}

const make = async ({ port, database }) => {
  const db = new PrismaClient({ adapter: new PrismaMariaDb({ host: "127.0.0.1", port, user: "root", database, connectionLimit: 3 }) });
  return {
    migrate: () => migrate(db),
    async work() {
      const made = await fill(db);
      await read(db);
      await change(db, made);
    },
    async load() {
      await db.book.updateMany({ data: { stock: 0 } });
      const ids = (await db.book.findMany({ orderBy: { id: "asc" }, take: 50, select: { id: true } })).map((b) => b.id);
      return write((number) => db.$transaction(async (tx) => {
        const [{ id, stock }] = await tx.$queryRaw`SELECT id, stock FROM books WHERE id = ${ids[number % 50]} FOR UPDATE`;
        await tx.book.update({ where: { id }, data: { stock: stock + 1 } });
        await tx.event.create({ data: { number, bookId: id } });
      }));
    },
    close: () => db.$disconnect(),
  };
};

start(make);
