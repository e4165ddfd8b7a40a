package apus;

import jakarta.persistence.CascadeType;
import jakarta.persistence.Column;
import jakarta.persistence.ElementCollection;
import jakarta.persistence.Entity;
import jakarta.persistence.EnumType;
import jakarta.persistence.Enumerated;
import jakarta.persistence.FetchType;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.Lob;
import jakarta.persistence.ManyToMany;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.Table;
import jakarta.persistence.UniqueConstraint;
import java.math.BigDecimal;
import java.time.Instant;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.hibernate.annotations.Check;
import org.hibernate.annotations.CreationTimestamp;
import org.hibernate.annotations.OnDelete;
import org.hibernate.annotations.OnDeleteAction;

/** What is sold. */
@Entity
@Table(name = "books", uniqueConstraints = @UniqueConstraint(name = "title_of_author", columnNames = {"author_id", "title"}))
@Check(name = "stock_there", constraints = "stock >= 0")
class Book {
    enum Kind {
        PAPER,
        SOUND
    }

    @Id
    @GeneratedValue(strategy = GenerationType.IDENTITY)
    Long id;

    @Column(length = 200, nullable = false)
    String title;

    @Column(precision = 10, scale = 2)
    BigDecimal price;

    int stock;

    @Enumerated(EnumType.STRING)
    Kind kind = Kind.PAPER;

    UUID uid = UUID.randomUUID();

    @Lob
    String text;

    byte[] cover;

    boolean ok = true;
    double weight;

    @CreationTimestamp
    Instant added;

    @ManyToOne(fetch = FetchType.LAZY)
    @OnDelete(action = OnDeleteAction.CASCADE)
    Author author;

    @ManyToMany(cascade = CascadeType.PERSIST)
    Set<Tag> tags = new HashSet<>();

    @ElementCollection
    Map<String, String> notes = new HashMap<>();

    Book() {}

    Book(String title, String price) {
        this.title = title;
        this.price = new BigDecimal(price);
    }
}
