//! The words of hints: what each is a hint of, and which of them may be written with which arguments.

/// What a hint is about. A word and its NO_ form are of one kind, and the first of them in a block counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    // Of tables, or of all tables of a block.
    Bka,
    Bnl,
    HashJoin,
    Merge,
    DerivedPushdown,
    // Of a table and some of its indexes.
    Mrr,
    Icp,
    Range,
    IndexMerge,
    SkipScan,
    Index,
    JoinIndex,
    GroupIndex,
    OrderIndex,
    // Of a block.
    JoinOrder,
    JoinPrefix,
    JoinSuffix,
    FixedOrder,
    SemiJoin,
    Subquery,
    // Of the statement.
    MaxExecutionTime,
    Name,
    SetVar,
    ResourceGroup,
}

/// What stands between the parentheses of a hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Tables,
    Indexes,
    /// The name of a block, if any.
    Block,
    Strategies,
    Strategy,
    Number,
    Name,
    Assignment,
}

impl Kind {
    pub fn form(self) -> Form {
        use Kind::*;
        match self {
            Bka | Bnl | HashJoin | Merge | DerivedPushdown | JoinOrder | JoinPrefix | JoinSuffix => Form::Tables,
            Mrr | Icp | Range | IndexMerge | SkipScan | Index | JoinIndex | GroupIndex | OrderIndex => Form::Indexes,
            FixedOrder => Form::Block,
            SemiJoin => Form::Strategies,
            Subquery => Form::Strategy,
            MaxExecutionTime => Form::Number,
            Name | ResourceGroup => Form::Name,
            SetVar => Form::Assignment,
        }
    }
    /// All indexes that a hint names are one choice; of other kinds each index has its own.
    pub fn is_compound(self) -> bool {
        use Kind::*;
        matches!(self, IndexMerge | SkipScan | Index | JoinIndex | GroupIndex | OrderIndex)
    }
}

/// Each word, and whether it switches on.
pub const WORDS: [(&str, Kind, bool); 37] = [
    ("BKA", Kind::Bka, true),
    ("BNL", Kind::Bnl, true),
    ("DERIVED_CONDITION_PUSHDOWN", Kind::DerivedPushdown, true),
    ("GROUP_INDEX", Kind::GroupIndex, true),
    ("HASH_JOIN", Kind::HashJoin, true),
    ("INDEX", Kind::Index, true),
    ("INDEX_MERGE", Kind::IndexMerge, true),
    ("JOIN_FIXED_ORDER", Kind::FixedOrder, true),
    ("JOIN_INDEX", Kind::JoinIndex, true),
    ("JOIN_ORDER", Kind::JoinOrder, true),
    ("JOIN_PREFIX", Kind::JoinPrefix, true),
    ("JOIN_SUFFIX", Kind::JoinSuffix, true),
    ("MAX_EXECUTION_TIME", Kind::MaxExecutionTime, true),
    ("MERGE", Kind::Merge, true),
    ("MRR", Kind::Mrr, true),
    ("NO_BKA", Kind::Bka, false),
    ("NO_BNL", Kind::Bnl, false),
    ("NO_DERIVED_CONDITION_PUSHDOWN", Kind::DerivedPushdown, false),
    ("NO_GROUP_INDEX", Kind::GroupIndex, false),
    ("NO_HASH_JOIN", Kind::HashJoin, false),
    ("NO_ICP", Kind::Icp, false),
    ("NO_INDEX", Kind::Index, false),
    ("NO_INDEX_MERGE", Kind::IndexMerge, false),
    ("NO_JOIN_INDEX", Kind::JoinIndex, false),
    ("NO_MERGE", Kind::Merge, false),
    ("NO_MRR", Kind::Mrr, false),
    ("NO_ORDER_INDEX", Kind::OrderIndex, false),
    ("NO_RANGE_OPTIMIZATION", Kind::Range, false),
    ("NO_SEMIJOIN", Kind::SemiJoin, false),
    ("NO_SKIP_SCAN", Kind::SkipScan, false),
    ("ORDER_INDEX", Kind::OrderIndex, true),
    ("QB_NAME", Kind::Name, true),
    ("RESOURCE_GROUP", Kind::ResourceGroup, true),
    ("SEMIJOIN", Kind::SemiJoin, true),
    ("SET_VAR", Kind::SetVar, true),
    ("SKIP_SCAN", Kind::SkipScan, true),
    ("SUBQUERY", Kind::Subquery, true),
];

/// Strategies of SEMIJOIN and NO_SEMIJOIN.
pub const SEMI_JOINS: [&str; 4] = ["FIRSTMATCH", "LOOSESCAN", "MATERIALIZATION", "DUPSWEEDOUT"];
/// Those of SUBQUERY.
pub const SUBQUERIES: [&str; 2] = ["INTOEXISTS", "MATERIALIZATION"];

/// The hint that a word names, in any letters.
pub fn find(word: &str) -> Option<(&'static str, Kind, bool)> {
    WORDS.into_iter().find(|(known, ..)| known.eq_ignore_ascii_case(word))
}
