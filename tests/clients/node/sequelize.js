// Sequelize: migrations by Umzug and its QueryInterface, models with associations, locks, optimistic locking, and the errors it makes of MySQL's.
"use strict";
const { Sequelize, DataTypes, Op, Transaction } = require("sequelize");
const { Umzug, SequelizeStorage } = require("umzug");
const { same, refused, write, start } = require("./common");

const { INTEGER, BIGINT, STRING, TEXT, DECIMAL, DATE, DATEONLY, ENUM, JSON: JSON_TYPE, BOOLEAN, UUID, UUIDV4, DOUBLE, BLOB } = DataTypes;
const id = { type: INTEGER.UNSIGNED, primaryKey: true, autoIncrement: true };
const times = { created_at: { type: DATE(3), allowNull: false }, updated_at: { type: DATE(3), allowNull: false } };

const MIGRATIONS = [
  {
    name: "01-tables",
    async up({ context: q }) {
      await q.createTable("authors", { id, name: { type: STRING(60), allowNull: false, unique: true }, born: DATEONLY, extra: JSON_TYPE, ...times }, { charset: "utf8mb4" });
      await q.createTable("books", {
        id, uid: { type: UUID, unique: true }, name: { type: STRING(80), allowNull: false }, price: { type: DECIMAL(10, 2), defaultValue: "1.50" }, kind: { type: ENUM("paper", "sound"), defaultValue: "paper" },
        author_id: { type: INTEGER.UNSIGNED, references: { model: "authors", key: "id" }, onDelete: "CASCADE", onUpdate: "CASCADE" }, ...times,
      });
      await q.createTable("events", { id, number: { type: INTEGER, allowNull: false }, note: STRING(10) });
    },
    async down({ context: q }) {
      for (const table of ["events", "books", "authors"]) await q.dropTable(table);
    },
  },
  {
    name: "02-goes-on",
    async up({ context: q }) {
      await q.addColumn("books", "stock", { type: INTEGER, allowNull: false, defaultValue: 0 });
      await q.addColumn("books", "text", { type: TEXT("long"), after: "name" });
      await q.renameColumn("books", "name", "title");
      await q.changeColumn("books", "title", { type: STRING(200), allowNull: false });
      await q.addColumn("events", "book_id", { type: INTEGER.UNSIGNED, references: { model: "books", key: "id" }, onDelete: "CASCADE" });
      await q.removeColumn("events", "note");
      await q.addIndex("books", ["title", "author_id"], { unique: true, name: "books_of_author" });
      await q.addIndex("books", { fields: [{ name: "title", length: 20 }], name: "books_title" });
      await q.addConstraint("books", { type: "check", name: "stock_there", fields: ["stock"], where: { stock: { [Op.gte]: 0 } } });
      await q.createTable("tags", { id, slug: { type: STRING(40), allowNull: false } });
      await q.addConstraint("tags", { type: "unique", fields: ["slug"], name: "one_slug" });
      const key = (model) => ({ type: INTEGER.UNSIGNED, primaryKey: true, references: { model, key: "id" }, onDelete: "CASCADE" });
      await q.createTable("book_tags", { book_id: key("books"), tag_id: key("tags") });
      await q.addColumn("books", "deleted_at", { type: DATE });
      await q.addColumn("authors", "version", { type: INTEGER, allowNull: false, defaultValue: 0 });
      await q.addColumn("authors", "boss_id", { type: INTEGER.UNSIGNED });
      await q.addConstraint("authors", { type: "foreign key", name: "authors_boss", fields: ["boss_id"], references: { table: "authors", field: "id" }, onDelete: "set null" });
    },
    async down({ context: q }) {
      await q.removeConstraint("authors", "authors_boss");
      await q.removeColumn("authors", "boss_id");
      await q.removeColumn("authors", "version");
      await q.removeColumn("books", "deleted_at");
      await q.dropTable("book_tags");
      await q.removeConstraint("tags", "one_slug");
      await q.dropTable("tags");
      await q.sequelize.query("ALTER TABLE books DROP CHECK stock_there"); // which Sequelize would drop as an index
      await q.removeIndex("books", "books_of_author");
      await q.removeIndex("books", "books_title");
      await q.removeColumn("events", "book_id");
      await q.addColumn("events", "note", { type: STRING(10) });
      await q.changeColumn("books", "title", { type: STRING(80), allowNull: false });
      await q.renameColumn("books", "title", "name");
      await q.removeColumn("books", "text");
      await q.removeColumn("books", "stock");
    },
  },
];

function models(db) {
  const options = { underscored: true };
  const Author = db.define("author", { name: { type: STRING(60), allowNull: false, unique: true }, born: DATEONLY, extra: JSON_TYPE }, { ...options, version: true });
  const Book = db.define("book", {
    uid: { type: UUID, defaultValue: UUIDV4 }, title: { type: STRING(200), allowNull: false, validate: { notEmpty: true } }, text: TEXT("long"), price: DECIMAL(10, 2), kind: ENUM("paper", "sound"), stock: { type: INTEGER, defaultValue: 0 },
    label: { type: DataTypes.VIRTUAL, get() { return `${this.title} (${this.price})`; } },
  }, { ...options, paranoid: true, scopes: { cheap: { where: { price: { [Op.lt]: 5 } } } } });
  const Tag = db.define("tag", { slug: STRING(40) }, { ...options, timestamps: false });
  const Event = db.define("event", { number: INTEGER }, { ...options, timestamps: false });
  Author.hasMany(Book, { onDelete: "CASCADE" });
  Book.belongsTo(Author);
  Author.belongsTo(Author, { as: "boss" });
  Book.belongsToMany(Tag, { through: "book_tags", timestamps: false });
  Tag.belongsToMany(Book, { through: "book_tags", timestamps: false });
  Event.belongsTo(Book);
  return { Author, Book, Tag, Event };
}

async function migrate(db) {
  const umzug = new Umzug({ migrations: MIGRATIONS, context: db.getQueryInterface(), storage: new SequelizeStorage({ sequelize: db }), logger: undefined });
  const q = db.getQueryInterface();
  await umzug.up({ to: "01-tables" });
  await q.bulkInsert("authors", [{ name: "First", extra: "{}", created_at: new Date(), updated_at: new Date() }]);
  await q.bulkInsert("books", [{ name: "Old", author_id: 1, created_at: new Date(), updated_at: new Date() }]);
  await umzug.up();
  await umzug.down();
  await umzug.up();
  same((await umzug.executed()).map((m) => m.name), ["01-tables", "02-goes-on"], "migrations");
  const columns = await q.describeTable("books");
  same([columns.title.type, columns.title.allowNull, columns.stock.defaultValue, columns.kind.type, columns.id.autoIncrement], ["VARCHAR(200)", false, "0", "ENUM('paper','sound')", true], "columns");
  same((await q.showIndex("books")).map((i) => [i.name, i.unique]).sort(), [["PRIMARY", true], ["author_id", false], ["books_of_author", true], ["books_title", false], ["uid", true]], "indexes");
  const keys = await q.getForeignKeyReferencesForTable("book_tags");
  same(keys.map((k) => [k.columnName, k.referencedTableName]).sort(), [["book_id", "books"], ["tag_id", "tags"]], "foreign keys");
  const tables = (await q.showAllTables()).map((t) => t.tableName ?? t).sort();
  same(tables, ["SequelizeMeta", "authors", "book_tags", "books", "events", "tags"], "tables");
  same((await db.models.book.findAll()).map((b) => [b.title, b.stock, b.price]), [["Old", 0, "1.50"]], "the row from before");
}

/// Tables that Sequelize makes of models by itself, and changes so that they fit.
async function sync(db) {
  const columns = { name: { type: STRING(30), allowNull: false, unique: "one_name" }, n: { type: BIGINT, defaultValue: 7 }, at: DATE(6), ok: BOOLEAN, f: DOUBLE, b: BLOB };
  const make = (more) => db.define("synced", { ...columns, ...more }, { indexes: [{ fields: ["n"] }], comment: "of this test" });
  await make({}).sync({ force: true });
  const Synced = make({ more: { type: STRING(5), defaultValue: "x" }, name: { type: STRING(50), allowNull: false, unique: "one_name" } });
  await Synced.sync({ alter: true });
  await Synced.sync({ alter: true });
  const at = new Date("2024-02-29T12:00:00.123Z");
  const made = await Synced.create({ name: "ü✈", at, ok: true, f: 1e100, b: Buffer.from([0, 255]) });
  const found = await Synced.findByPk(made.id);
  same([found.name, found.n, found.at.getTime(), found.ok, found.f, [...found.b], found.more], ["ü✈", 7, at.getTime(), true, 1e100, [0, 255], "x"], "a row of all types");
  await Synced.truncate();
  await Synced.drop();
}

async function fill({ Author, Book }) {
  await Author.bulkCreate(Array.from({ length: 20 }, (_, n) => ({ name: `Author ${n}`, born: `19${10 + n}-01-02`, extra: { n, langs: n % 2 ? ["en"] : ["da", "en"] } })));
  const authors = await Author.findAll({ where: { name: { [Op.startsWith]: "Author" } }, order: ["id"] });
  await Book.bulkCreate(authors.flatMap((author) => Array.from({ length: 25 }, (_, n) => ({ title: `Book ${n}`, price: n % 20, authorId: author.id, kind: n % 2 ? "paper" : "sound" }))));
}

async function read({ Author, Book, Tag }, db) {
  const made = await Author.create({ name: "Ærøskøbing ✈", extra: { deep: { n: 3 } }, books: [{ title: "One", price: "12.50", tags: [{ slug: "a" }, { slug: "b" }] }, { title: "Two", price: 1 }] }, { include: [{ model: Book, include: [Tag] }] });
  const found = await Author.findOne({ where: { name: "Ærøskøbing ✈" }, include: [{ model: Book, include: [{ model: Tag, through: { attributes: [] } }], order: ["id"] }], order: [[Book, "title", "ASC"], [Book, Tag, "slug", "DESC"]] });
  same(found.books.map((b) => [b.label, b.tags.map((t) => t.slug)]), [["One (12.50)", ["b", "a"]], ["Two (1.00)", []]], "an author with all that is his");
  const { count, rows } = await Book.findAndCountAll({ where: { price: { [Op.between]: [3, 7] } }, include: [{ model: Author, required: true, where: { name: { [Op.like]: "Author%" } } }], order: [["price", "DESC"], ["id", "ASC"]], limit: 10, offset: 20, distinct: true });
  same([count, rows.length, rows[0].price], [140, 10, "6.00"], "a page");
  const page = await Author.findAll({ include: [Book], limit: 3, offset: 2, order: ["name"] });
  same(page.map((a) => a.books.length), [25, 25, 25], "a page of authors with books (a subquery)");
  const totals = await Book.findAll({ attributes: ["kind", [db.fn("COUNT", db.col("id")), "n"], [db.fn("SUM", db.col("price")), "total"]], group: ["kind"], having: db.where(db.fn("COUNT", db.col("id")), Op.gt, 10), order: ["kind"], raw: true });
  same(totals, [{ kind: "paper", n: 243, total: "2095.00" }, { kind: "sound", n: 260, total: "1920.00" }], "totals");
  same(await Author.count({ where: { "extra.deep.n": 3 } }), 1, "by JSON");
  same(await Author.count({ where: db.where(db.fn("JSON_CONTAINS", db.col("extra"), '"da"', db.literal("'$.langs'")), 1) }), 10, "by a function of JSON");
  same([await Book.scope("cheap").count(), Number(await Book.max("price")), await Book.sum("stock")], [202, 19, 0], "aggregates");
  same((await found.getBooks({ where: { title: "Two" } })).length, 1, "through the association");
  same(await Book.count({ where: { id: { [Op.in]: db.literal("(SELECT book_id FROM book_tags)") }, [Op.or]: [{ title: { [Op.substring]: "n" } }, { price: null }], [Op.not]: { kind: "sound" } } }), 1, "conditions");
  const rows2 = await db.query("SELECT title FROM books WHERE author_id = :a AND price > $b ORDER BY id".replace("$b", ":b"), { replacements: { a: made.id, b: 1 }, type: Sequelize.QueryTypes.SELECT });
  same(rows2, [{ title: "One" }], "replacements");
  same(await db.query("SELECT $1 + $2 AS n", { bind: [1, 2], type: Sequelize.QueryTypes.SELECT }), [{ n: 3 }], "bound");
}

async function change({ Author, Book, Tag }, db) {
  const [book, isNew] = await Book.findOrCreate({ where: { title: "Three" }, defaults: { price: 3 } });
  same([isNew, (await Book.findOrCreate({ where: { title: "Three" } }))[1]], [true, false], "found or created");
  same((await Book.upsert({ id: book.id, title: "Three", price: 4 }))[1], false, "an upsert");
  // Sequelize made "a" and "b" at the same time, so either has the lower id.
  const { id: a } = await Tag.findOne({ where: { slug: "a" } });
  await Tag.bulkCreate([{ id: a, slug: "aa" }, { id: 100, slug: "hundred" }], { updateOnDuplicate: ["slug"] });
  same((await Tag.findAll({ order: ["slug"] })).map((t) => t.slug), ["aa", "b", "hundred"], "many upserts");
  await Tag.bulkCreate([{ slug: "b" }, { slug: "new" }], { ignoreDuplicates: true });
  await book.addTags(await Tag.findAll({ limit: 2 }));
  await book.setTags(await Tag.findAll({ where: { slug: ["b", "new"] } }));
  same((await book.reload({ include: [Tag] })).tags.map((t) => t.slug).sort(), ["b", "new"], "tags that were set");
  await book.increment({ stock: 5 });
  same((await book.reload()).stock, 5, "a stock");
  same((await Book.update({ kind: "sound" }, { where: { title: "Book 1" }, limit: 7 }))[0], 7, "rows changed");
  await book.destroy();
  same([await Book.count({ where: { id: book.id } }), await Book.count({ where: { id: book.id }, paranoid: false })], [0, 1], "a row deleted softly");
  await book.restore();
  const stale = await Author.findByPk(2);
  await (await Author.findByPk(2)).update({ born: "2000-01-01" });
  same((await refused(() => stale.update({ born: "1999-01-01" }), "an author changed before")).name, "SequelizeOptimisticLockError", "the error");
  await refused(() => db.transaction(async (transaction) => {
    await Tag.create({ slug: "goes" }, { transaction });
    throw new Error("on purpose");
  }), "a transaction");
  const t = await db.transaction({ isolationLevel: Transaction.ISOLATION_LEVELS.REPEATABLE_READ });
  await Tag.create({ slug: "stays" }, { transaction: t });
  await db.transaction({ transaction: t }, async (inner) => refused(() => Tag.create({ slug: "stays" }, { transaction: inner }), "a second tag"));
  same((await Tag.findAll({ where: { slug: "stays" }, lock: t.LOCK.UPDATE, skipLocked: true, transaction: t })).length, 1, "a locked row");
  await t.commit();
  same([await Tag.count({ where: { slug: "goes" } }), await Tag.count({ where: { slug: "stays" } })], [0, 1], "what is left");
}

async function errors({ Author, Book, Tag }) {
  const taken = await refused(() => Tag.create({ slug: "aa" }), "a second tag");
  same([taken.name, taken.fields, taken.errors[0].path], ["SequelizeUniqueConstraintError", { one_slug: "aa" }, "one_slug"], "1062");
  const nobody = await refused(() => Book.create({ title: "Nobody's", authorId: 999_999 }), "a book of nobody");
  same([nobody.name, nobody.table, nobody.fields], ["SequelizeForeignKeyConstraintError", "authors", ["author_id"]], "1452");
  const negative = await refused(() => Book.update({ stock: -1 }, { where: { title: "Three" } }), "a negative stock");
  same([negative.name, negative.original.code], ["SequelizeDatabaseError", "ER_CHECK_CONSTRAINT_VIOLATED"], "3819");
  same((await refused(() => Book.create({ title: "" }), "no title")).name, "SequelizeValidationError", "validation");
  same((await refused(() => Book.create({ title: "x".repeat(300) }), "a long title")).original.code, "ER_DATA_TOO_LONG", "1406");
  const boss = await Author.create({ name: "Boss" });
  const clerk = await Author.create({ name: "Clerk", bossId: boss.id });
  await boss.destroy();
  same((await clerk.reload()).bossId, null, "a key set to NULL");
  const author = await Author.findOne({ where: { name: "Author 3" } });
  await author.destroy();
  same(await Book.count({ where: { authorId: author.id }, paranoid: false }), 0, "books that went along");
}

const make = async ({ port, database }) => {
  const db = new Sequelize(database, "root", "", { host: "127.0.0.1", port, dialect: "mysql", logging: false, pool: { max: 5 }, timezone: "+00:00" });
  await db.authenticate();
  const all = models(db);
  return {
    migrate: () => migrate(db),
    async work() {
      await sync(db);
      await fill(all);
      await read(all, db);
      await change(all, db);
      await errors(all);
    },
    async load() {
      const books = await all.Book.findAll({ limit: 50, order: ["id"] });
      await all.Book.update({ stock: 0 }, { where: {} });
      return write((number) => db.transaction(async (transaction) => {
        const book = await all.Book.findByPk(books[number % books.length].id, { transaction, lock: true });
        await book.update({ stock: book.stock + 1 }, { transaction });
        await all.Event.create({ number, bookId: book.id }, { transaction });
      }));
    },
    close: () => db.close(),
  };
};

start(make);
