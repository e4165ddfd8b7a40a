//! Foreign keys as a part of a table's definition, and the mark of a table whose rows are held to constraints.
//!
//! The table that refers keeps the definition. It names the table that it refers to, and its columns, because that may not be there yet (`foreign_key_checks = 0`), and
//! may be dropped and made again. Its own columns it keeps by number, as an index does. The table that is referred to has only a mark, [`Held`]: that
//! there is somebody, and since which version of it. Whoever writes rows by an older version does not know of the constraint, and the data nodes refuse him.
//!
//! SQL nodes hold the constraints; data nodes know nothing of them but these versions. See docs/decisions/0028-foreign-keys.md.

/// What becomes of rows that refer to a row that goes or gets another key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Action {
    #[default]
    NoAction = 0,
    Restrict = 1,
    Cascade = 2,
    SetNull = 3,
    /// Kept and shown; it refuses, as in MySQL.
    SetDefault = 4,
}

impl Action {
    pub const ALL: [Action; 5] =
        [Action::NoAction, Action::Restrict, Action::Cascade, Action::SetNull, Action::SetDefault];

    pub fn name(self) -> &'static str {
        match self {
            Action::NoAction => "NO ACTION",
            Action::Restrict => "RESTRICT",
            Action::Cascade => "CASCADE",
            Action::SetNull => "SET NULL",
            Action::SetDefault => "SET DEFAULT",
        }
    }
    /// Rows that refer are in the way.
    pub fn refuses(self) -> bool {
        matches!(self, Action::NoAction | Action::Restrict | Action::SetDefault)
    }
}

/// MATCH as it was written; it means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Match {
    #[default]
    None = 0,
    Simple = 1,
    Partial = 2,
    Full = 3,
}

impl Match {
    pub const ALL: [Match; 4] = [Match::None, Match::Simple, Match::Partial, Match::Full];

    pub fn name(self) -> &'static str {
        match self {
            Match::None | Match::Simple => "NONE",
            Match::Partial => "PARTIAL",
            Match::Full => "FULL",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignKey {
    /// In no other table of the database.
    pub name: String,
    /// Numbers of columns of this table.
    pub columns: Vec<u16>,
    pub parent_database: String,
    pub parent_table: String,
    pub parent_columns: Vec<String>,
    pub on_delete: Action,
    pub on_update: Action,
    pub matching: Match,
    /// Version of the dictionary that has made it: older ones act first.
    pub created: u64,
    /// Rows that were there before it have not been looked at.
    pub unchecked: bool,
}

impl ForeignKey {
    pub fn refers_to(&self, database: &str, table: &str) -> bool {
        self.parent_table == table && self.parent_database == database
    }
}

/// What writers of a table's rows have to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Foreign keys refer to the table.
    pub is_referenced: bool,
    /// Operations by an older version of the table are refused; 0: none.
    pub since: u32,
}
