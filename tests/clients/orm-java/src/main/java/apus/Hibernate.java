package apus;

import static apus.Common.refused;
import static apus.Common.same;

import jakarta.persistence.LockModeType;
import java.math.BigDecimal;
import java.time.LocalDate;
import java.util.List;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;
import org.hibernate.exception.ConstraintViolationException;
import org.hibernate.exception.DataException;

/** Hibernate: `PORT DATABASE STEP`. Its tables are made and completed by `hbm2ddl`. */
final class Hibernate {
    static SessionFactory open(String port, String database, String ddl) {
        Configuration configuration = new Configuration()
                .setProperty("hibernate.connection.url", Common.address(port, database))
                .setProperty("hibernate.connection.username", "root")
                .setProperty("hibernate.connection.pool_size", "4")
                .setProperty("hibernate.jdbc.batch_size", "20")
                .setProperty("hibernate.hbm2ddl.halt_on_error", "true")
                .setProperty("hibernate.hbm2ddl.auto", ddl);
        for (Class<?> entity : List.of(Author.class, Book.class, Tag.class, Event.class)) {
            configuration.addAnnotatedClass(entity);
        }
        return configuration.buildSessionFactory();
    }

    static void migrate(String port, String database) {
        for (String ddl : List.of("create-only", "update", "validate", "create", "create-drop", "create-only", "validate")) {
            open(port, database, ddl).close();
        }
        try (SessionFactory factory = open(port, database, "none")) {
            // A table from before lacks a column, a table and a key; `update` brings them.
            factory.inTransaction(session -> {
                session.createNativeMutationQuery("DROP TABLE Book_notes").executeUpdate();
                session.createNativeMutationQuery("ALTER TABLE books DROP COLUMN weight").executeUpdate();
            });
        }
        open(port, database, "update").close();
        open(port, database, "validate").close();
    }

    static void work(SessionFactory factory) throws Exception {
        factory.inTransaction(session -> {
            for (int n = 0; n < 20; n++) {
                Author author = new Author("Author " + n);
                for (int b = 0; b < 25; b++) {
                    author.with(new Book("Book " + b, String.valueOf(b % 20)));
                }
                session.persist(author);
            }
        });
        long id = factory.fromTransaction(session -> {
            Book book = new Book("One", "12.50");
            book.cover = new byte[] {0, -1};
            book.text = "ü".repeat(70_000);
            book.weight = 1e-300;
            book.tags.add(new Tag("a"));
            book.tags.add(new Tag("b"));
            book.notes.put("shelf", "near ✈");
            Author author = new Author("Ærøskøbing").with(book);
            author.born = LocalDate.of(1970, 2, 28);
            session.persist(author);
            session.flush();
            return book.id;
        });
        read(factory, id);
        change(factory, id);
    }

    static void read(SessionFactory factory, long id) {
        factory.inTransaction(session -> {
            Book book = session.createSelectionQuery("from Book b join fetch b.author left join fetch b.tags where b.id = :id", Book.class).setParameter("id", id).getSingleResult();
            same(List.of(book.author.born, book.price, book.text.length(), book.cover[1], book.weight, book.kind, book.tags.size(), book.notes.get("shelf")),
                    List.of(LocalDate.of(1970, 2, 28), new BigDecimal("12.50"), 70_000, (byte) -1, 1e-300, Book.Kind.PAPER, 2, "near ✈"), "a book");
            List<Book> page = session.createSelectionQuery("from Book where price between 3 and 7 and author.name like 'Author 1%' order by price desc, id", Book.class).setFirstResult(10).setMaxResults(10).getResultList();
            same(List.of(page.size(), page.get(0).price), List.of(10, new BigDecimal("7.00")), "a page");
            List<Object[]> totals = session.createSelectionQuery("select a.name, count(b), sum(b.price) from Author a join a.books b group by a having count(b) > 1 order by a.name", Object[].class).getResultList();
            same(List.of(totals.size(), totals.get(0)[1], totals.get(0)[2]), List.of(20, 25L, new BigDecimal("200.00")), "totals");
            same(session.createSelectionQuery("select count(*) from Book b where b.tags is empty and exists (from Author a where a = b.author and size(a.books) > 3)", Long.class).getSingleResult(), 500L, "subqueries");
            same(session.createSelectionQuery("select t.r from (select rank() over (partition by b.author.id order by b.price desc) as r, b.id as i from Book b) t where t.r = 1", Long.class).getResultList().size(), 41 - 20, "a window");
            same(session.createNativeQuery("SELECT title FROM books WHERE id = ?1", String.class).setParameter(1, id).getSingleResult(), "One", "SQL");
        });
    }

    static void change(SessionFactory factory, long id) throws Exception {
        same(factory.fromTransaction(s -> s.createMutationQuery("update Book set stock = stock + 2 where title = 'Book 1'").executeUpdate()), 20, "rows changed");
        same(refused(ConstraintViolationException.class, () -> factory.fromTransaction(s -> persisted(s, new Tag("a"))), "a second tag"), 1062, "the number");
        same(refused(ConstraintViolationException.class, () -> factory.fromTransaction(s -> s.createNativeMutationQuery("INSERT INTO events (number, book_id) VALUES (1, 999999)").executeUpdate()), "an event of nothing"), 1452, "the number");
        same(refused(RuntimeException.class, () -> factory.fromTransaction(s -> s.createMutationQuery("update Book set stock = -1").executeUpdate()), "a negative stock"), 3819, "the number");
        same(refused(DataException.class, () -> factory.fromTransaction(s -> persisted(s, new Author("x".repeat(99)))), "a long name"), 1406, "the number");
        try (Session stale = factory.openSession()) {
            Author author = stale.createSelectionQuery("from Author where name = 'Author 2'", Author.class).getSingleResult();
            factory.inTransaction(s -> s.find(Author.class, author.id).born = LocalDate.of(2000, 1, 1));
            stale.beginTransaction();
            author.born = LocalDate.of(1999, 1, 1);
            refused(jakarta.persistence.OptimisticLockException.class, () -> {
                stale.flush();
                return null;
            }, "an author that was changed before");
            stale.getTransaction().rollback();
        }
        factory.inTransaction(s -> {
            Book book = s.find(Book.class, id, LockModeType.PESSIMISTIC_WRITE);
            book.tags.removeIf(tag -> tag.slug.equals("a"));
            book.tags.add(new Tag("c"));
            book.notes.put("shelf", "far");
        });
        factory.inTransaction(s -> s.remove(s.find(Book.class, id).author));
        same(factory.fromTransaction(s -> s.createSelectionQuery("select count(*) from Book", Long.class).getSingleResult()), 500L, "books that are left");
    }

    static Object persisted(Session session, Object what) {
        session.persist(what);
        session.flush();
        return what;
    }

    static void load(SessionFactory factory) throws Exception {
        factory.inTransaction(s -> s.createMutationQuery("update Book set stock = 0").executeUpdate());
        List<Long> books = factory.fromTransaction(s -> s.createSelectionQuery("select id from Book order by id", Long.class).setMaxResults(50).getResultList());
        Common.write(number -> factory.inTransaction(s -> {
            Book book = s.find(Book.class, books.get(number % books.size()), LockModeType.PESSIMISTIC_WRITE);
            book.stock++;
            s.persist(new Event(number, book));
        }));
    }

    public static void main(String[] arguments) throws Exception {
        String port = arguments[0];
        String database = arguments[1];
        if (arguments[2].equals("migrate")) {
            migrate(port, database);
            return;
        }
        try (SessionFactory factory = open(port, database, "validate")) {
            if (arguments[2].equals("work")) {
                work(factory);
            } else {
                load(factory);
            }
        }
    }
}
