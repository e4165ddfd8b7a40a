//! What MySQL has beyond the parser's dialect: `!`, INTERVAL with compound units and as a function, EXTRACT of such units,
//! GET_FORMAT, CHAR ... USING, BINARY as the operator it is, and the modifiers of UPDATE and DELETE.

pub mod functions;

use std::any::TypeId;

use sqlparser::{
    ast::{BinaryOperator, CastKind, DataType, Expr, SqliteOnConflict, Statement, UnaryOperator},
    dialect::{Dialect, MySqlDialect, Precedence},
    keywords::Keyword,
    parser::{Parser, ParserError},
    tokenizer::Token,
};

use self::functions::{
    call_of, cast, char_function, extract, get_format, interval, json_value, match_against, position, regexp,
    trim_spaces,
};

/// What MATCH ... AGAINST is a call of.
pub const MATCH: &str = " match";

/// Binds tighter than every infix operator.
const TIGHTEST: u8 = 200;

/// Of XOR: between OR and AND.
const XOR: u8 = 7;

/// Of `=`, `<` and their like: above IS, below LIKE, IN and BETWEEN, which are operands of them.
const COMPARISON: u8 = 18;

/// Of `<<` and `>>`: between `&` and `+`.
const SHIFT: u8 = 26;

/// Of `^`: above `*`.
const BIT_XOR: u8 = 44;

/// Of `||` where it joins texts ([`crate::variables::sql_mode`]): above `^`.
const CONCAT: u8 = 45;

/// Of the signs and `~`: above all operators between two values.
const UNARY: u8 = 46;

/// The parser's MySQL and what it lacks.
#[derive(Debug)]
pub struct ApusDialect(pub MySqlDialect);

type Parsed<T> = Result<T, ParserError>;

impl Dialect for ApusDialect {
    fn dialect(&self) -> TypeId {
        self.0.dialect()
    }
    fn is_identifier_start(&self, ch: char) -> bool {
        self.0.is_identifier_start(ch)
    }
    fn is_identifier_part(&self, ch: char) -> bool {
        self.0.is_identifier_part(ch)
    }
    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        self.0.is_delimited_identifier_start(ch)
    }
    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        self.0.identifier_quote_style(identifier)
    }
    fn supports_string_literal_backslash_escape(&self) -> bool {
        self.0.supports_string_literal_backslash_escape()
    }
    fn supports_string_literal_concatenation(&self) -> bool {
        self.0.supports_string_literal_concatenation()
    }
    fn ignores_wildcard_escapes(&self) -> bool {
        self.0.ignores_wildcard_escapes()
    }
    fn supports_numeric_prefix(&self) -> bool {
        self.0.supports_numeric_prefix()
    }
    fn supports_bitwise_shift_operators(&self) -> bool {
        self.0.supports_bitwise_shift_operators()
    }
    fn supports_multiline_comment_hints(&self) -> bool {
        self.0.supports_multiline_comment_hints()
    }
    fn parse_prefix(&self, parser: &mut Parser) -> Option<Parsed<Expr>> {
        let [first, following] = parser.peek_tokens::<2>();
        match first {
            Token::ExclamationMark => return Some(not(parser)),
            Token::Minus => return Some(unary(parser, UnaryOperator::Minus)),
            Token::Plus => return Some(unary(parser, UnaryOperator::Plus)),
            Token::Tilde => return Some(unary(parser, UnaryOperator::BitwiseNot)),
            _ => {}
        }
        let Token::Word(word) = first else { return None };
        if word.quote_style.is_some() {
            return None;
        }
        let is = |name: &str| word.value.eq_ignore_ascii_case(name);
        let called = following == Token::LParen;
        Some(match word.keyword {
            Keyword::INTERVAL => interval(parser),
            Keyword::EXTRACT if called => extract(parser),
            Keyword::BINARY => binary(parser),
            Keyword::CHAR if called => char_function(parser),
            Keyword::CAST if called => cast(parser),
            Keyword::POSITION if called => position(parser),
            _ if is("match") && (called || matches!(following, Token::Word(_))) => match_against(parser),
            _ if called && is("get_format") => get_format(parser),
            _ if called && is("json_value") => json_value(parser),
            Keyword::TRIM if called => return trim_spaces(parser),
            _ => return None,
        })
    }
    fn parse_infix(&self, parser: &mut Parser, expr: &Expr, precedence: u8) -> Option<Parsed<Expr>> {
        if parser.consume_token(&Token::Assignment) {
            let (left, op) = (Box::new(expr.clone()), BinaryOperator::Assignment);
            return Some(parser.parse_expr().map(|right| Expr::BinaryOp { left, op, right: Box::new(right) }));
        }
        if parser.consume_token(&Token::PGCubeRoot) {
            return Some(parser.parse_subexpr(precedence).map(|right| call_of("concat", vec![expr.clone(), right])));
        }
        regexp(parser, expr, precedence).or_else(|| self.0.parse_infix(parser, expr, precedence))
    }
    fn get_next_precedence(&self, parser: &Parser) -> Option<Parsed<u8>> {
        // What stands before `:=` is one word, what stands behind it is all there is.
        if parser.peek_token_ref().token == Token::Assignment {
            return Some(Ok(TIGHTEST));
        }
        if matches!(parser.peek_token_ref().token, Token::Arrow | Token::LongArrow) {
            return Some(Ok(TIGHTEST));
        }
        // Whose precedence in other dialects is that of other operators.
        match &parser.peek_token_ref().token {
            Token::StringConcat => Some(Ok(self.prec_value(Precedence::Or))),
            Token::Word(word) if word.keyword == Keyword::XOR => Some(Ok(XOR)),
            Token::Overlap => Some(Ok(self.prec_value(Precedence::And))),
            Token::Eq | Token::Neq | Token::Lt | Token::LtEq | Token::Gt | Token::GtEq | Token::Spaceship => {
                Some(Ok(COMPARISON))
            }
            Token::ShiftLeft | Token::ShiftRight => Some(Ok(SHIFT)),
            Token::Caret => Some(Ok(BIT_XOR)),
            Token::PGCubeRoot => Some(Ok(CONCAT)),
            _ => self.0.get_next_precedence(parser),
        }
    }
    fn parse_statement(&self, parser: &mut Parser) -> Option<Parsed<Statement>> {
        match &parser.peek_token_ref().token {
            Token::Word(w) if w.keyword == Keyword::UPDATE => Some(update(parser)),
            Token::Word(w) if w.keyword == Keyword::DELETE => Some(delete(parser)),
            _ => self.0.parse_statement(parser),
        }
    }
    fn require_interval_qualifier(&self) -> bool {
        self.0.require_interval_qualifier()
    }
    fn supports_limit_comma(&self) -> bool {
        self.0.supports_limit_comma()
    }
    fn supports_create_table_select(&self) -> bool {
        self.0.supports_create_table_select()
    }
    fn supports_insert_set(&self) -> bool {
        self.0.supports_insert_set()
    }
    fn supports_user_host_grantee(&self) -> bool {
        self.0.supports_user_host_grantee()
    }
    fn is_table_factor_alias(&self, explicit: bool, kw: &Keyword, parser: &mut Parser) -> bool {
        self.0.is_table_factor_alias(explicit, kw, parser)
    }
    fn supports_table_hints(&self) -> bool {
        self.0.supports_table_hints()
    }
    fn requires_single_line_comment_whitespace(&self) -> bool {
        self.0.requires_single_line_comment_whitespace()
    }
    fn supports_match_against(&self) -> bool {
        self.0.supports_match_against()
    }
    fn supports_select_modifiers(&self) -> bool {
        self.0.supports_select_modifiers()
    }
    fn supports_set_names(&self) -> bool {
        self.0.supports_set_names()
    }
    fn supports_comma_separated_set_assignments(&self) -> bool {
        self.0.supports_comma_separated_set_assignments()
    }
    fn supports_update_order_by(&self) -> bool {
        self.0.supports_update_order_by()
    }
    fn supports_data_type_signed_suffix(&self) -> bool {
        self.0.supports_data_type_signed_suffix()
    }
    fn supports_cross_join_constraint(&self) -> bool {
        self.0.supports_cross_join_constraint()
    }
    fn supports_double_ampersand_operator(&self) -> bool {
        self.0.supports_double_ampersand_operator()
    }
    fn supports_binary_kw_as_cast(&self) -> bool {
        self.0.supports_binary_kw_as_cast()
    }
    fn supports_comment_optimizer_hint(&self) -> bool {
        self.0.supports_comment_optimizer_hint()
    }
    fn supports_constraint_keyword_without_name(&self) -> bool {
        self.0.supports_constraint_keyword_without_name()
    }
    fn supports_key_column_option(&self) -> bool {
        self.0.supports_key_column_option()
    }
    fn supports_group_by_with_modifier(&self) -> bool {
        self.0.supports_group_by_with_modifier()
    }
    fn supports_group_by_expr(&self) -> bool {
        true
    }
    fn supports_left_associative_joins_without_parens(&self) -> bool {
        self.0.supports_left_associative_joins_without_parens()
    }
}

/// `!x` binds like a sign, other than NOT; `!/ x` is what the scanner makes of a NOT that does.
fn not(parser: &mut Parser) -> Parsed<Expr> {
    parser.expect_token(&Token::ExclamationMark)?;
    let _ = parser.consume_token(&Token::Div);
    let expr = Box::new(parser.parse_subexpr(TIGHTEST)?);
    Ok(Expr::UnaryOp { op: UnaryOperator::BangNot, expr })
}

fn unary(parser: &mut Parser, op: UnaryOperator) -> Parsed<Expr> {
    parser.next_token();
    Ok(Expr::UnaryOp { op, expr: Box::new(parser.parse_subexpr(UNARY)?) })
}

/// `BINARY x` binds like a sign.
fn binary(parser: &mut Parser) -> Parsed<Expr> {
    parser.expect_keyword(Keyword::BINARY)?;
    let expr = Box::new(parser.parse_subexpr(TIGHTEST)?);
    Ok(Expr::Cast { kind: CastKind::Cast, expr, data_type: DataType::Binary(None), format: None })
}

/// Whether the next token is this word, which is taken.
fn word(parser: &mut Parser, name: &str) -> bool {
    let found = matches!(&parser.peek_token_ref().token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(name));
    if found {
        parser.next_token();
    }
    found
}

fn update(parser: &mut Parser) -> Parsed<Statement> {
    let token = parser.next_token();
    word(parser, "low_priority");
    let ignore = word(parser, "ignore");
    let mut statement = parser.parse_update(token)?;
    if let Statement::Update(update) = &mut statement
        && ignore
    {
        update.or = Some(SqliteOnConflict::Ignore);
    }
    Ok(statement)
}

/// IGNORE is read by the planner from the text.
fn delete(parser: &mut Parser) -> Parsed<Statement> {
    let token = parser.next_token();
    let names_a_table = |parser: &Parser| !matches!(parser.peek_nth_token_ref(1).token, Token::Word(ref w) if w.keyword == Keyword::FROM || ["quick", "ignore"].iter().any(|m| w.value.eq_ignore_ascii_case(m)));
    for modifier in ["low_priority", "quick", "ignore"] {
        if !names_a_table(parser) {
            word(parser, modifier);
        }
    }
    parser.parse_delete(token)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    /// What is tried in two ways on every level takes hours at this depth.
    #[test]
    fn nesting_costs_no_more_than_its_length() {
        const DEPTH: usize = 30;
        let forms = [
            ("INTERVAL (", "1", ") DAY"),
            ("INTERVAL (1 + ", "1", ") DAY"),
            ("INTERVAL(", "1", ", 2)"),
            ("POSITION(", "1", " IN 'a')"),
            ("POSITION(", "1", ", 'a')"),
            ("CASE WHEN 1 THEN ", "1", " END"),
            ("CASE ", "1", ""),
            ("TRIM(BOTH FROM ", "1", ")"),
            ("IF(current_time(", "x", ""),
            ("(", "1", ", 2)"),
        ];
        for (open, inside, close) in forms {
            for closes in [DEPTH, DEPTH / 2] {
                let text = format!("SELECT {}{inside}{}", open.repeat(DEPTH), close.repeat(closes));
                let begin = Instant::now();
                let _ = crate::plan::syntax::parse(&text);
                assert!(begin.elapsed() < Duration::from_secs(5), "{text}");
            }
        }
    }
}
