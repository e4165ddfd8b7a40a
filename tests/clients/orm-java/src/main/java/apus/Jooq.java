package apus;

import static apus.Common.refused;
import static apus.Common.same;
import static org.jooq.impl.DSL.count;
import static org.jooq.impl.DSL.field;
import static org.jooq.impl.DSL.name;
import static org.jooq.impl.DSL.rank;
import static org.jooq.impl.DSL.row;
import static org.jooq.impl.DSL.select;
import static org.jooq.impl.DSL.sum;
import static org.jooq.impl.DSL.table;
import static org.jooq.impl.DSL.val;

import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DriverManager;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.flywaydb.core.Flyway;
import org.jooq.DSLContext;
import org.jooq.Field;
import org.jooq.Record;
import org.jooq.SQLDialect;
import org.jooq.Table;
import org.jooq.conf.Settings;
import org.jooq.exception.DataAccessException;
import org.jooq.exception.IntegrityConstraintViolationException;
import org.jooq.impl.DSL;

/** Flyway for the schema, jOOQ without generated code for the rest: `PORT DATABASE STEP`. */
final class Jooq {
    static final Table<Record> AUTHORS = table(name("authors"));
    static final Table<Record> BOOKS = table(name("books"));
    static final Table<Record> EVENTS = table(name("events"));
    static final Field<Long> ID = field(name("books", "id"), Long.class);
    static final Field<String> TITLE = field(name("books", "title"), String.class);
    static final Field<BigDecimal> PRICE = field(name("books", "price"), BigDecimal.class);
    static final Field<Integer> STOCK = field(name("books", "stock"), Integer.class);
    static final Field<Long> AUTHOR = field(name("books", "author_id"), Long.class);
    static final Field<Long> AUTHOR_ID = field(name("authors", "id"), Long.class);
    static final Field<String> NAME = field(name("authors", "name"), String.class);

    static Flyway flyway(String port, String database, String target) {
        return Flyway.configure().dataSource(Common.address(port, database), "root", "").locations("classpath:migrations").placeholders(Map.of("first", "First")).target(target).cleanDisabled(false).load();
    }

    /** Two processes that migrate at once: one waits for the other's GET_LOCK. */
    static void migrate(String port, String database) throws Exception {
        same(flyway(port, database, "1").migrate().migrationsExecuted, 2, "migrations, with the repeatable one");
        flyway(port, database, "latest").clean();
        CountDownLatch both = new CountDownLatch(2);
        Callable<Integer> one = () -> {
            both.countDown();
            both.await();
            return flyway(port, database, "latest").migrate().migrationsExecuted;
        };
        ExecutorService pool = Executors.newFixedThreadPool(2);
        int done = 0;
        for (Future<Integer> answer : pool.invokeAll(List.of(one, one))) {
            done += answer.get();
        }
        pool.shutdown();
        same(done, 3, "migrations of both");
        Flyway flyway = flyway(port, database, "latest");
        flyway.validate();
        same(flyway.info().applied().length, 3, "what the history tells");
        same(flyway.info().current().getVersion() == null || flyway.info().current().getVersion().getVersion().equals("2"), true, "the version");
        flyway.repair();
    }

    static void work(DSLContext db) throws Exception {
        for (int n = 0; n < 20; n++) {
            db.insertInto(AUTHORS, NAME).values("Author " + n).execute();
            long author = db.lastID().longValue();
            var insert = db.insertInto(BOOKS, TITLE, PRICE, AUTHOR);
            for (int b = 0; b < 25; b++) {
                insert = insert.values("Book " + b, BigDecimal.valueOf(b % 20), author);
            }
            same(insert.execute(), 25, "books of an author");
        }
        var page = db.select(TITLE, PRICE, NAME).from(BOOKS).join(AUTHORS).on(AUTHOR_ID.eq(AUTHOR)).where(PRICE.between(val(BigDecimal.valueOf(3)), val(BigDecimal.valueOf(7)))).and(NAME.like("Author 1%")).orderBy(PRICE.desc(), ID).limit(10).offset(10).fetch();
        same(List.of(page.size(), page.get(0).value2()), List.of(10, new BigDecimal("7.00")), "a page");
        var totals = db.select(NAME, count(), sum(PRICE)).from(AUTHORS).join(BOOKS).on(AUTHOR_ID.eq(AUTHOR)).groupBy(AUTHOR_ID, NAME).having(count().gt(1)).orderBy(NAME).fetch();
        same(List.of(totals.size(), totals.get(0).value2(), totals.get(0).value3()), List.of(20, 25, new BigDecimal("200.00")), "totals");
        var ranked = select(ID, rank().over().partitionBy(AUTHOR).orderBy(PRICE.desc()).as("r")).from(BOOKS);
        same(db.with("ranked").as(ranked).selectCount().from(table(name("ranked"))).where(field(name("r"), Integer.class).eq(1)).fetchOne(0, int.class), 20, "a window in a CTE");
        same(db.fetchCount(db.selectFrom(BOOKS).where(row(TITLE, PRICE).in(row("Book 1", BigDecimal.ONE), row("Book 2", BigDecimal.valueOf(2))))), 40, "rows");
        same(db.select(ID).from(BOOKS).where(TITLE.eq("Book 1")).union(select(ID).from(BOOKS).where(TITLE.eq("Book 2"))).fetch().size(), 40, "a union");
        try (var cursor = db.select(ID).from(BOOKS).fetchSize(Integer.MIN_VALUE).fetchLazy()) {
            same(cursor.stream().count(), 500L, "a stream");
        }
        change(db);
    }

    static void change(DSLContext db) throws Exception {
        db.insertInto(AUTHORS, NAME).values("Author 1").onDuplicateKeyUpdate().set(NAME, "Author one").execute();
        same(db.insertInto(AUTHORS, NAME).values("Author 2").onDuplicateKeyIgnore().execute(), 0, "rows inserted");
        same(db.update(BOOKS).set(STOCK, STOCK.plus(2)).where(TITLE.eq("Book 1")).execute(), 20, "rows changed");
        int[] changed = db.batch(db.query("UPDATE books SET stock = ? WHERE title = ?", 0, "")).bind(1, "Book 3").bind(2, "Book 4").execute();
        same(List.of(changed[0], changed[1]), List.of(20, 20), "a batch");
        same(refused(IntegrityConstraintViolationException.class, () -> db.insertInto(AUTHORS, NAME).values("Author 2").execute(), "a second author"), 1062, "the number");
        same(refused(IntegrityConstraintViolationException.class, () -> db.insertInto(BOOKS, TITLE, AUTHOR).values("x", 999_999L).execute(), "a book of nobody"), 1452, "the number");
        same(refused(DataAccessException.class, () -> db.update(BOOKS).set(STOCK, -1).execute(), "a negative stock"), 3819, "the number");
        same(refused(DataAccessException.class, () -> db.insertInto(AUTHORS, NAME).values("x".repeat(99)).execute(), "a long name"), 1406, "the number");
        refused(IllegalStateException.class, () -> db.transactionResult(outer -> {
            outer.dsl().insertInto(AUTHORS, NAME).values("goes").execute();
            refused(DataAccessException.class, () -> outer.dsl().transactionResult(inner -> inner.dsl().insertInto(AUTHORS, NAME).values("goes").execute()), "a second one");
            same(outer.dsl().selectFrom(AUTHORS).where(NAME.eq("goes")).forUpdate().noWait().fetch().size(), 1, "a locked row");
            throw new IllegalStateException("on purpose");
        }), "the transaction");
        same(db.fetchCount(AUTHORS, NAME.eq("goes")), 0, "what is left");
        same(db.deleteFrom(AUTHORS).where(NAME.eq("Author 3")).execute(), 1, "rows deleted");
        same(db.fetchCount(BOOKS), 475, "books that are left");
        same(db.meta().getTables().stream().filter(t -> t.getName().equals("books") && t.getReferences().size() == 1 && t.getKeys().size() == 2).count() >= 1, true, "the tables that jOOQ finds");
    }

    static void load(DSLContext db) throws Exception {
        db.update(BOOKS).set(STOCK, 0).execute();
        List<Long> books = db.select(ID).from(BOOKS).orderBy(ID).limit(50).fetch(ID);
        Common.write(number -> db.transaction(t -> {
            Long book = books.get(number % books.size());
            int stock = t.dsl().select(STOCK).from(BOOKS).where(ID.eq(book)).forUpdate().fetchOne(STOCK);
            t.dsl().update(BOOKS).set(STOCK, stock + 1).where(ID.eq(book)).execute();
            t.dsl().insertInto(EVENTS, field(name("number"), Integer.class), field(name("book_id"), Long.class)).values(number, book).execute();
        }));
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.jooq.no-logo", "true");
        System.setProperty("org.jooq.no-tips", "true");
        if (arguments[2].equals("migrate")) {
            migrate(arguments[0], arguments[1]);
            return;
        }
        try (Connection connection = DriverManager.getConnection(Common.address(arguments[0], arguments[1]), "root", "")) {
            DSLContext db = DSL.using(connection, SQLDialect.MYSQL, new Settings().withExecuteLogging(false));
            if (arguments[2].equals("work")) {
                work(db);
            } else {
                load(db);
            }
        }
    }
}
