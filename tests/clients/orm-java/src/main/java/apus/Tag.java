package apus;

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.Id;
import jakarta.persistence.Table;

/** A word for books. Its numbers come from a table, which Hibernate has for a sequence. */
@Entity
@Table(name = "tags")
class Tag {
    @Id @GeneratedValue Long id;

    @Column(length = 40, unique = true)
    String slug;

    Tag() {}

    Tag(String slug) {
        this.slug = slug;
    }
}
