//! Errors of CHECK constraints, defaults and generated columns.

use crate::{errors, wire::SqlError};

fn error(errno: u16, text: String) -> SqlError {
    SqlError::new(errno, b"HY000", text)
}

/// Where an expression stands.
#[derive(Clone, Copy, Debug)]
pub enum Place<'p> {
    /// The name of the constraint.
    Check(&'p str),
    /// Of one that comes by ALTER TABLE.
    Added(&'p str),
    /// The name of the column.
    Default(&'p str),
    Generated(&'p str),
    /// The name of the index.
    KeyPart(&'p str),
}

impl Place<'_> {
    pub fn function(self, function: &str) -> SqlError {
        match self {
            Place::Check(name) | Place::Added(name) => error(
                3814,
                format!("An expression of a check constraint '{name}' contains disallowed function: {function}."),
            ),
            Place::Default(name) => error(
                3770,
                format!("Default value expression of column '{name}' contains a disallowed function: {function}."),
            ),
            Place::Generated(name) => error(
                3763,
                format!("Expression of generated column '{name}' contains a disallowed function: {function}."),
            ),
            Place::KeyPart(name) => function_of_key_part(name),
        }
    }
    pub fn subquery(self) -> SqlError {
        match self {
            Place::Check(name) | Place::Added(name) => {
                error(3815, format!("An expression of a check constraint '{name}' contains disallowed function."))
            }
            Place::Default(name) => {
                error(3769, format!("Default value expression of column '{name}' contains a disallowed function."))
            }
            Place::Generated(name) => {
                error(3102, format!("Expression of generated column '{name}' contains a disallowed function."))
            }
            Place::KeyPart(name) => function_of_key_part(name),
        }
    }
    pub fn variable(self) -> SqlError {
        match self {
            Place::Check(name) | Place::Added(name) => error(
                3816,
                format!("An expression of a check constraint '{name}' cannot refer to a user or system variable."),
            ),
            Place::Default(name) | Place::Generated(name) | Place::KeyPart(name) => error(
                3772,
                format!("Default value expression of column '{name}' cannot refer user or system variables."),
            ),
        }
    }
    pub fn row(self) -> SqlError {
        match self {
            Place::Check(_) | Place::Added(_) => errors::operand_columns(1),
            Place::Default(name) => {
                error(3771, format!("Default value expression of column '{name}' cannot refer to a row value."))
            }
            Place::Generated(name) => {
                error(3764, format!("Expression of generated column '{name}' cannot refer to a row value."))
            }
            Place::KeyPart(name) => {
                error(3800, format!("Expression of functional index '{name}' cannot refer to a row value."))
            }
        }
    }
    pub fn unknown_column(self, column: &str) -> SqlError {
        match self {
            Place::Added(name) => errors::unknown_column(column, &format!("check constraint {name} expression")),
            Place::Check(name) => {
                error(3820, format!("Check constraint '{name}' refers to non-existing column '{column}'."))
            }
            Place::Default(_) => errors::unknown_column(column, "default value expression"),
            Place::Generated(_) => errors::unknown_column(column, "generated column function"),
            Place::KeyPart(_) => errors::unknown_column(column, "functional index"),
        }
    }
    pub fn auto_increment(self) -> SqlError {
        match self {
            Place::Check(name) | Place::Added(name) => {
                error(3818, format!("Check constraint '{name}' cannot refer to an auto-increment column."))
            }
            Place::Default(name) => error(
                3768,
                format!("Default value expression of column '{name}' cannot refer to an auto-increment column."),
            ),
            Place::Generated(name) => {
                error(3109, format!("Generated column '{name}' cannot refer to auto-increment column."))
            }
            Place::KeyPart(name) => {
                error(3754, format!("Functional index '{name}' cannot refer to an auto-increment column."))
            }
        }
    }
    /// What the expression refers to has no value yet.
    pub fn later_column(self) -> SqlError {
        match self {
            Place::Generated(_) | Place::Check(_) | Place::Added(_) | Place::KeyPart(_) => {
                error(3107, "Generated column can refer only to generated columns defined prior to it.".to_owned())
            }
            Place::Default(name) => error(
                3767,
                format!(
                    "Default value expression of column '{name}' cannot refer to a column defined after it if that column is a generated column or has an expression as default value."
                ),
            ),
        }
    }
}

fn function_of_key_part(name: &str) -> SqlError {
    error(3758, format!("Expression of functional index '{name}' contains a disallowed function."))
}
pub fn full_text_of_expression() -> SqlError {
    error(3759, "Fulltext functional index is not supported.".to_owned())
}
pub fn key_of_column() -> SqlError {
    let text = "Functional index on a column is not supported. Consider using a regular index instead.";
    error(3762, text.to_owned())
}
pub fn primary_key_part() -> SqlError {
    error(3756, "The primary key cannot be a functional index".to_owned())
}
/// The flag: it is a document, and not a long text.
pub fn long_key_part(is_json: bool) -> SqlError {
    if is_json {
        let text = "Cannot create a functional index on a function that returns a JSON or GEOMETRY value.";
        return SqlError::new(3753, b"42000", text);
    }
    let text =
        "Cannot create a functional index on an expression that returns a BLOB or TEXT. Please consider using CAST.";
    error(3757, text.to_owned())
}
pub fn used_by_key_part(column: &str) -> SqlError {
    error(3837, format!("Column '{column}' has a functional index dependency and cannot be dropped or renamed."))
}

pub fn check_violated(name: &str) -> SqlError {
    error(3819, format!("Check constraint '{name}' is violated."))
}
pub fn not_boolean(name: &str) -> SqlError {
    error(3812, format!("An expression of non-boolean type specified to a check constraint '{name}'."))
}
pub fn other_column(name: &str) -> SqlError {
    error(3813, format!("Column check constraint '{name}' references other column."))
}
pub fn duplicate_check(name: &str) -> SqlError {
    error(3822, format!("Duplicate check constraint name '{name}'."))
}
pub fn unknown_check(name: &str) -> SqlError {
    error(3821, format!("Check constraint '{name}' is not found in the table."))
}
pub fn unknown_constraint(name: &str) -> SqlError {
    error(3940, format!("Constraint '{name}' does not exist."))
}
pub fn used_by_check(check: &str, column: &str) -> SqlError {
    error(
        3959,
        format!("Check constraint '{check}' uses column '{column}', hence column cannot be dropped or renamed."),
    )
}
pub fn used_by_default(column: &str, table: &str) -> SqlError {
    error(
        3766,
        format!(
            "Column '{column}' of table '{table}' has a default value expression dependency and cannot be dropped or renamed."
        ),
    )
}
pub fn used_by_generated(column: &str) -> SqlError {
    error(3108, format!("Column '{column}' has a generated column dependency."))
}
pub fn default_is_expression() -> SqlError {
    error(3773, "DEFAULT function cannot be used with default value expressions".to_owned())
}
pub fn value_for_generated(column: &str, table: &str) -> SqlError {
    error(3105, format!("The value specified for generated column '{column}' in table '{table}' is not allowed."))
}
pub fn not_of_generated(what: &str) -> SqlError {
    error(3106, format!("'{what}' is not supported for generated columns."))
}
pub fn unsafe_function() -> SqlError {
    error(
        1674,
        "Statement is unsafe because it uses a system function that may return a different value on the replica."
            .to_owned(),
    )
}
