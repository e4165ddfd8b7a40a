package apus;

import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.Table;

/** Something that came to a book. */
@Entity
@Table(name = "events")
class Event {
    @Id
    @GeneratedValue(strategy = GenerationType.IDENTITY)
    Long id;

    int number;

    @ManyToOne(optional = false)
    Book book;

    Event() {}

    Event(int number, Book book) {
        this.number = number;
        this.book = book;
    }
}
