// TypeORM: migrations by its QueryRunner, after which its look at the schema must find no difference; entities with relations, versions and soft deletion.
"use strict";
require("reflect-metadata");
const { DataSource, EntitySchema, Table, TableColumn, TableForeignKey, TableIndex, Between, Like, In, QueryFailedError } = require("typeorm");
const { same, refused, write, start } = require("./common");

const id = { type: "int", unsigned: true, primary: true, generated: "increment" };
const Author = new EntitySchema({
  name: "Author", tableName: "authors",
  columns: { id, name: { type: "varchar", length: 60, unique: true }, born: { type: "date", nullable: true }, extra: { type: "json", nullable: true }, version: { type: "int", version: true } },
  relations: { books: { type: "one-to-many", target: "Book", inverseSide: "author", cascade: true } },
});
const Book = new EntitySchema({
  name: "Book", tableName: "books",
  columns: {
    id, title: { type: "varchar", length: 200 }, text: { type: "longtext", nullable: true }, price: { type: "decimal", precision: 10, scale: 2, default: "1.50" }, stock: { type: "int", default: 0 }, kind: { type: "enum", enum: ["paper", "sound"], default: "paper" },
    cover: { type: "blob", nullable: true }, sold: { type: "bigint", unsigned: true, nullable: true }, words: { type: "simple-array", nullable: true }, ok: { type: "tinyint", width: 1, default: 1, transformer: { from: Boolean, to: (v) => v } },
    added: { type: "datetime", precision: 6, createDate: true, default: () => "CURRENT_TIMESTAMP(6)" }, changed: { type: "datetime", precision: 6, updateDate: true, default: () => "CURRENT_TIMESTAMP(6)", onUpdate: "CURRENT_TIMESTAMP(6)" }, gone: { type: "datetime", precision: 6, deleteDate: true, nullable: true },
  },
  relations: {
    author: { type: "many-to-one", target: "Author", inverseSide: "books", onDelete: "CASCADE", joinColumn: { name: "author_id", foreignKeyConstraintName: "of_author" }, nullable: true },
    tags: { type: "many-to-many", target: "Tag", cascade: true, joinTable: { name: "book_tags" } },
  },
  indices: [{ name: "dear", columns: ["price", "kind"] }, { name: "title_of_author", columns: ["author", "title"], unique: true }],
});
const Tag = new EntitySchema({ name: "Tag", tableName: "tags", columns: { id, slug: { type: "varchar", length: 40, unique: true } } });
const Event = new EntitySchema({ name: "Event", tableName: "events", columns: { id, number: { type: "int" } }, relations: { book: { type: "many-to-one", target: "Book", joinColumn: { name: "book_id" }, nullable: false } } });

const column = (name, type, more) => ({ name, type, ...more });
const key = column("id", "int", { unsigned: true, isPrimary: true, isGenerated: true, generationStrategy: "increment" });

class First1700000000000 {
  async up(q) {
    await q.createTable(new Table({ name: "shelves", columns: [key, column("name", "varchar", { length: "20", isUnique: true }), column("up", "int", { unsigned: true, isNullable: true })] }), true);
    await q.createForeignKey("shelves", new TableForeignKey({ name: "above", columnNames: ["up"], referencedTableName: "shelves", referencedColumnNames: ["id"], onDelete: "SET NULL" }));
    await q.addColumn("shelves", new TableColumn(column("width", "int", { default: 3 })));
    await q.query("INSERT INTO shelves (name) VALUES ('first')");
  }
  async down(q) {
    await q.dropTable("shelves");
  }
}

class Second1700000000001 {
  async up(q) {
    await q.renameColumn("shelves", "width", "wide");
    await q.createIndex("shelves", new TableIndex({ name: "by_width", columnNames: ["wide", "name"] }));
    await q.changeColumn("shelves", "name", new TableColumn(column("name", "varchar", { length: "20", comment: "painted on it" })));
    await q.addColumns("shelves", [new TableColumn(column("at", "datetime", { precision: 3, default: "CURRENT_TIMESTAMP(3)" })), new TableColumn(column("note", "varchar", { length: "9", isNullable: true }))]);
  }
  async down(q) {
    await q.dropColumns("shelves", ["at", "note"]);
    await q.dropIndex("shelves", "by_width");
    await q.renameColumn("shelves", "wide", "width");
  }
}

async function migrate(db) {
  await db.runMigrations({ transaction: "each" });
  await db.undoLastMigration();
  same((await db.runMigrations()).map((m) => m.name), ["Second1700000000001"], "migrations");
  same((await db.query("SELECT name, wide FROM shelves")).map((row) => ({ ...row })), [{ name: "first", wide: 3 }], "the row from before");
  const q = db.createQueryRunner();
  const table = await q.getTable("shelves");
  same([table.columns.map((c) => c.name).sort(), table.foreignKeys.map((k) => k.name), table.indices.map((i) => i.name)], [["at", "id", "name", "note", "up", "wide"], ["above"], ["by_width"]], "a table");
  await q.release();
  await db.query("DROP TABLE shelves");
  await db.synchronize();
  await db.synchronize();
  const { upQueries } = await db.driver.createSchemaBuilder().log();
  same(upQueries.map((query) => query.query), [], "what differs from the entities");
}

async function read(db) {
  const [authors, books] = [db.getRepository("Author"), db.getRepository("Book")];
  await authors.save(Array.from({ length: 20 }, (_, n) => ({ name: `Author ${n}`, extra: { n }, books: Array.from({ length: 25 }, (_, b) => ({ title: `Book ${b}`, price: b % 20 })) })), { chunk: 7 });
  const made = await authors.save({ name: "Ærøskøbing ✈", born: "1970-02-28", extra: { deep: { n: 3.5 } }, books: [{ title: "One", price: "12.50", words: ["a", "b"], sold: "18446744073709551615", cover: Buffer.from([0, 255]), tags: [{ slug: "x" }, { slug: "y" }] }] });
  const found = await authors.findOne({ where: { name: made.name }, relations: { books: { tags: true } }, order: { books: { tags: { slug: "DESC" } } } });
  const [book] = found.books;
  same([found.born, found.extra, book.price, book.words, book.sold, [...book.cover], book.ok, book.tags.map((t) => t.slug)], ["1970-02-28", { deep: { n: 3.5 } }, "12.50", ["a", "b"], "18446744073709551615", [0, 255], true, ["y", "x"]], "an author with all that is his");
  const [rows, count] = await books.findAndCount({ where: { price: Between(3, 7), author: { name: Like("Author 1%") } }, relations: { author: true }, order: { price: "DESC", id: "ASC" }, skip: 10, take: 10 });
  same([count, rows.length, rows[0].price, rows[0].author.name], [77, 10, "7.00", "Author 19"], "a page");
  const totals = await books.createQueryBuilder("b").innerJoin("b.author", "a").select("a.name", "name").addSelect("COUNT(*)", "n").addSelect("SUM(b.price)", "total").groupBy("a.id").having("COUNT(*) > :n", { n: 1 }).orderBy("total", "DESC").addOrderBy("a.name").getRawMany();
  same([totals.length, { ...totals[0] }], [20, { name: "Author 0", n: "25", total: "200.00" }], "totals");
  const inside = await books.createQueryBuilder("b").where((q) => `b.author_id IN ${q.subQuery().select("a.id").from("Author", "a").where("a.name < :name").getQuery()}`).setParameter("name", "Author 11").getCount();
  same(inside, 76, "a subquery");
  same(await books.maximum("price"), 19, "an aggregate");
  let seen = 0;
  for await (const row of await books.createQueryBuilder("b").stream()) seen += row.b_id ? 1 : 0;
  same(seen, 501, "a stream");
  return book;
}

async function change(db, book) {
  const [authors, books, tags] = [db.getRepository("Author"), db.getRepository("Book"), db.getRepository("Tag")];
  await tags.upsert([{ slug: "x" }, { slug: "z" }], ["slug"]);
  await tags.createQueryBuilder().insert().values({ slug: "z" }).orIgnore().execute();
  same(await tags.countBy({ slug: In(["x", "y", "z"]) }), 3, "tags");
  same((await books.increment({ title: "Book 1" }, "stock", 2)).affected, 20, "rows changed");
  await books.softDelete(book.id);
  same([await books.countBy({ id: book.id }), await books.count({ where: { id: book.id }, withDeleted: true })], [0, 1], "a row deleted softly");
  await books.restore(book.id);
  const author = await authors.findOneBy({ name: "Author 2" });
  author.born = "2000-01-01";
  same((await authors.save(author)).version, 2, "the version");
  const stale = await refused(() => db.transaction((m) => m.getRepository("Author").findOne({ where: { id: author.id }, lock: { mode: "optimistic", version: 1 } })), "an old version");
  same(stale.name, "OptimisticLockVersionMismatchError", "the error");
  for (const [what, errno, action] of [["a second tag", 1062, () => tags.insert({ slug: "x" })], ["an event of nothing", 1452, () => db.getRepository("Event").insert({ number: 1, book: { id: 999_999 } })],
    ["a long tag", 1406, () => tags.insert({ slug: "x".repeat(99) })]]) {
    const error = await refused(action, what);
    same([error instanceof QueryFailedError, error.errno], [true, errno], what);
  }
  await refused(() => db.transaction("REPEATABLE READ", async (outer) => {
    await outer.save("Tag", { slug: "goes" });
    await refused(() => outer.transaction((inner) => inner.insert("Tag", { slug: "goes" })), "a second tag");
    same((await outer.find("Tag", { where: { slug: "goes" }, lock: { mode: "pessimistic_write", onLocked: "nowait" } })).length, 1, "a locked row");
    throw new Error("on purpose");
  }), "the transaction");
  same(await tags.countBy({ slug: "goes" }), 0, "what is left");
  book.tags = [];
  await books.save(book);
  same((await authors.delete({ name: "Author 3" })).affected, 1, "rows deleted");
  same(await books.count(), 476, "books that are left");
}

const make = async ({ port, database }) => {
  const db = await new DataSource({ type: "mysql", host: "127.0.0.1", port, username: "root", database, timezone: "Z", poolSize: 5, entities: [Author, Book, Tag, Event], migrations: [First1700000000000, Second1700000000001], supportBigNumbers: true }).initialize();
  return {
    migrate: () => migrate(db),
    work: async () => change(db, await read(db)),
    async load() {
      await db.getRepository("Book").createQueryBuilder().update().set({ stock: 0 }).execute();
      const books = await db.getRepository("Book").find({ take: 50, order: { id: "ASC" } });
      return write((number) => db.transaction(async (m) => {
        const book = await m.findOne("Book", { where: { id: books[number % books.length].id }, lock: { mode: "pessimistic_write" } });
        book.stock += 1;
        await m.save("Book", book);
        await m.insert("Event", { number, book });
      }));
    },
    close: () => db.destroy(),
  };
};

start(make);
