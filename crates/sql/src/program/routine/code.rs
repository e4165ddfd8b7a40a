//! The program that the body of a routine becomes: steps with jumps between them.
//!
//! Variables have places in the frame of a call, given when the body is compiled; so a block that declares a name again has another place, and what a name means is settled before
//! the first call. The text of an expression or statement keeps its names, and is planned when it is first run, with the variables as parameters.
//!
//! Which handlers may take an error is said by where its step stands ([`Program::block_of`]), not by what was run before: a block knows the block around it, and the body of a
//! handler stands in the block around the one that declares it.

use std::{cell::RefCell, rc::Rc};

use apus_types::{Column, ColumnType};

use crate::{
    expr::Kind,
    parse::token::{Token, Tokens},
    plan::bind,
    session::prepared::KeptPlan,
    value::number_format::Face,
    variables::Planning,
};

/// The place of a variable in the frame of a call.
pub type Place = usize;

/// Variables of one program: values of a frame, and links of [`Names`].
pub const VARIABLES_MAX: usize = 4096;

/// Variables in view at a point of a program. Each scope has those of the scopes around it in common with them.
#[derive(Clone, Default, Debug)]
pub struct Names(Option<Rc<(Name, Names)>>);

#[derive(Debug)]
pub struct Name {
    pub name: String,
    pub place: Place,
    pub ty: Option<ColumnType>,
    /// How its numbers look.
    pub face: Option<Face>,
}

impl Names {
    /// With one more.
    pub fn and(&self, name: Name) -> Names {
        Names(Some(Rc::new((name, self.clone()))))
    }
    /// From the innermost outward.
    fn iter(&self) -> impl Iterator<Item = &Name> {
        std::iter::successors(self.0.as_deref(), |(_, outer)| outer.0.as_deref()).map(|(name, _)| name)
    }
    pub fn find(&self, name: &str) -> Option<&Name> {
        self.iter().find(|known| known.name.eq_ignore_ascii_case(name))
    }
    pub fn at(&self, place: Place) -> Option<&Name> {
        self.iter().find(|known| known.place == place)
    }
    /// Whether one of this name came behind so many variables of the program.
    pub fn has_since(&self, place: Place, name: &str) -> bool {
        self.iter().take_while(|known| known.place >= place).any(|known| known.name.eq_ignore_ascii_case(name))
    }
}

/// An expression (as `SELECT expression`) or a statement that names variables.
#[derive(Debug)]
pub struct Text {
    pub sql: String,
    pub names: Names,
    pub kept: RefCell<Option<Kept>>,
}

impl Text {
    pub fn new(sql: String, names: &Names) -> Text {
        Text { sql, names: names.clone(), kept: RefCell::default() }
    }
}

impl Text {
    /// Whether it has what may be the call of a stored function.
    pub fn may_call(&self) -> bool {
        let t = Tokens::new(&self.sql);
        let is_call = |at: usize| match (t.ahead(at), t.ahead(at + 1)) {
            (Some(Token::Word(word)), Some(Token::Symbol('('))) => !bind::function::is_native(word),
            (Some(Token::Quoted(_)), Some(Token::Symbol('('))) => true,
            _ => false,
        };
        (0..t.rest().len()).any(is_call)
    }
}

/// A plan, and what it depends on beside the dictionary.
#[derive(Debug)]
pub struct Kept {
    pub plan: KeptPlan,
    pub planning: Planning,
    pub kinds: Vec<Kind>,
}

/// Where a value goes.
#[derive(Clone, PartialEq, Debug)]
pub enum Target {
    Variable(Place),
    /// `@name`, lower case.
    User(String),
}

#[derive(Debug)]
pub struct Argument {
    pub value: Text,
    /// Of OUT and INOUT.
    pub target: Option<Target>,
}

#[derive(Debug)]
pub enum Step {
    /// RETURN: the value of the function, at this place.
    Return(Place, Text),
    /// Variables become NULL.
    Clear(Vec<Place>),
    Assign(Place, Text),
    AssignUser(String, Text),
    /// `SET name =` of a variable of the system; without a value: DEFAULT, or a word.
    SetSystem(String, Text),
    Unless {
        condition: Text,
        to: usize,
    },
    Jump(usize),
    /// No WHEN of a CASE was true, and there is no ELSE.
    NoCase,
    /// A statement that is planned; rows of a SELECT are the client's.
    Planned(Text),
    /// A statement that is none of those: a definition, SHOW, COMMIT.
    Other(Text),
    Into(Text, Vec<Target>),
    Call {
        database: Option<String>,
        name: String,
        arguments: Vec<Argument>,
    },
    Open(usize),
    Fetch(usize, Vec<Target>),
    Close(usize),
    /// Cursors of a block that ends.
    CloseAll(std::ops::Range<usize>),
    /// Out of blocks.
    Leave {
        to: usize,
        cursors: Vec<usize>,
    },
    /// The end of the body of an EXIT handler, and of its block. `within`: the body of a handler that the block stands in.
    Exit {
        to: usize,
        within: Option<usize>,
    },
    /// The end of the body of a CONTINUE handler.
    Resume,
    Signal(Box<Signal>),
    Diagnostics(Box<Diagnostics>),
}

impl Step {
    fn texts(&self) -> Vec<&Text> {
        match self {
            Step::Return(_, text)
            | Step::Assign(_, text)
            | Step::AssignUser(_, text)
            | Step::SetSystem(_, text)
            | Step::Unless { condition: text, .. }
            | Step::Planned(text)
            | Step::Other(text)
            | Step::Into(text, _) => vec![text],
            Step::Call { arguments, .. } => arguments.iter().map(|argument| &argument.value).collect(),
            Step::Signal(signal) => signal.items.iter().map(|(_, text)| text).collect(),
            Step::Diagnostics(diagnostics) => match &diagnostics.wanted {
                Wanted::Condition(number, _) => vec![number],
                Wanted::Statement(_) => Vec::new(),
            },
            Step::Clear(_)
            | Step::Jump(_)
            | Step::NoCase
            | Step::Open(_)
            | Step::Fetch(..)
            | Step::Close(_)
            | Step::CloseAll(_)
            | Step::Leave { .. }
            | Step::Exit { .. }
            | Step::Resume => Vec::new(),
        }
    }
}

#[derive(Debug)]
pub struct Signal {
    /// RESIGNAL.
    pub again: bool,
    pub state: Option<[u8; 5]>,
    pub items: Vec<(Item, Text)>,
}

/// What is told of a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    MessageText,
    MysqlErrno,
    ReturnedSqlstate,
    /// CLASS_ORIGIN and SUBCLASS_ORIGIN.
    Origin {
        sub: bool,
    },
    /// Names of a constraint, table, column or cursor, by a number: known only where SIGNAL tells them.
    Name(u8),
}

impl Item {
    pub fn name(self) -> &'static str {
        ITEMS.iter().find(|(_, item)| *item == self).map_or("", |(name, _)| name)
    }
}

/// By their names.
pub const ITEMS: [(&str, Item); 13] = [
    ("MESSAGE_TEXT", Item::MessageText),
    ("MYSQL_ERRNO", Item::MysqlErrno),
    ("RETURNED_SQLSTATE", Item::ReturnedSqlstate),
    ("CLASS_ORIGIN", Item::Origin { sub: false }),
    ("SUBCLASS_ORIGIN", Item::Origin { sub: true }),
    ("CONSTRAINT_CATALOG", Item::Name(0)),
    ("CONSTRAINT_SCHEMA", Item::Name(1)),
    ("CONSTRAINT_NAME", Item::Name(2)),
    ("CATALOG_NAME", Item::Name(3)),
    ("SCHEMA_NAME", Item::Name(4)),
    ("TABLE_NAME", Item::Name(5)),
    ("COLUMN_NAME", Item::Name(6)),
    ("CURSOR_NAME", Item::Name(7)),
];

#[derive(Debug)]
pub struct Diagnostics {
    pub stacked: bool,
    pub wanted: Wanted,
}

#[derive(Debug)]
pub enum Wanted {
    /// Of the statement: its number of conditions, or (`true`) of rows.
    Statement(Vec<(Target, bool)>),
    /// Of the condition of this number.
    Condition(Text, Vec<(Target, Item)>),
}

/// What a handler is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    Error(u16),
    State([u8; 5]),
    Warning,
    NotFound,
    Exception,
}

#[derive(Debug)]
pub struct Handler {
    pub conditions: Vec<Condition>,
    /// Its first step.
    pub body: usize,
}

/// BEGIN ... END.
#[derive(Debug)]
pub struct Block {
    pub parent: Option<usize>,
    pub handlers: Vec<Handler>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    In,
    Out,
    InOut,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::In => "IN",
            Mode::Out => "OUT",
            Mode::InOut => "INOUT",
        }
    }
}

#[derive(Debug)]
pub struct Parameter {
    pub mode: Mode,
    pub column: Column,
}

#[derive(Debug)]
pub struct Variable {
    /// `None`: it holds what it is given.
    pub column: Option<Column>,
}

/// `NEW.column` or `OLD.column` of a trigger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowVariable {
    pub is_new: bool,
    /// Of the table.
    pub column: u16,
    pub place: Place,
    /// The trigger gives it a value.
    pub is_set: bool,
    pub is_read: bool,
}

/// What `NEW.column` and `OLD.column` are called among the variables in view; no text can say that.
pub fn row_name(is_new: bool, column: &str) -> String {
    format!("{}\u{1}{column}", if is_new { "new" } else { "old" })
}

/// `Some(whether it is NEW)` of the word in front of the point.
pub fn row_word(word: &str) -> Option<bool> {
    let is = |other| word.eq_ignore_ascii_case(other);
    if is("new") { Some(true) } else { is("old").then_some(false) }
}

#[derive(Default, Debug)]
pub struct Program {
    pub parameters: Vec<Parameter>,
    /// By their places; the parameters first.
    pub variables: Vec<Variable>,
    pub steps: Vec<Step>,
    /// The block that each step stands in.
    pub block_of: Vec<usize>,
    /// Where a CONTINUE handler goes on behind a step, unless it is the next one.
    pub behind: Vec<(usize, usize)>,
    pub blocks: Vec<Block>,
    /// SELECTs of cursors.
    pub cursors: Vec<Text>,
    /// Of a trigger: what it names of its rows.
    pub rows: Vec<RowVariable>,
    /// Of a function: where its value is put.
    pub returns: Option<Place>,
}

impl Program {
    pub fn may_return(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Return(..)))
    }
    /// All expressions and statements.
    pub fn texts(&self) -> impl Iterator<Item = &Text> {
        self.steps.iter().flat_map(Step::texts).chain(&self.cursors)
    }
    pub fn has_handlers(&self) -> bool {
        self.blocks.iter().any(|block| !block.handlers.is_empty())
    }
}
