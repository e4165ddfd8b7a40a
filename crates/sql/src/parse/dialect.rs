//! What MySQL has beyond the parser's dialect: `!`, INTERVAL with compound units and as a function, EXTRACT of such units,
//! GET_FORMAT, CHAR ... USING, BINARY as the operator it is, and the modifiers of UPDATE and DELETE.

use std::any::TypeId;

use sqlparser::{
    ast::{
        BinaryOperator, CastKind, CharacterLength, DataType, DateTimeField, Expr, ExtractSyntax, Function, FunctionArg,
        FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, Interval, ObjectName, SqliteOnConflict,
        Statement, UnaryOperator, Value,
    },
    dialect::{Dialect, MySqlDialect, Precedence},
    keywords::Keyword,
    parser::{Parser, ParserError},
    tokenizer::Token,
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

/// A call of a function by name.
pub fn call_of(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() }),
        within_group: Vec::new(),
        filter: None,
        null_treatment: None,
        over: None,
    })
}

/// Expressions in parentheses.
fn list(parser: &mut Parser) -> Parsed<Vec<Expr>> {
    parser.expect_token(&Token::LParen)?;
    let list = parser.parse_comma_separated(Parser::parse_expr)?;
    parser.expect_token(&Token::RParen)?;
    Ok(list)
}

/// `INTERVAL n unit`, or the function `INTERVAL(n, a, b, ...)`.
fn interval(parser: &mut Parser) -> Parsed<Expr> {
    parser.expect_keyword(Keyword::INTERVAL)?;
    let value = if parser.peek_token_ref().token == Token::LParen {
        let mut arguments = list(parser)?;
        if arguments.len() > 1 {
            return Ok(call_of("interval", arguments));
        }
        let mut value = Expr::Nested(Box::new(arguments.remove(0)));
        // Read on: parsing it again as an expression would take twice the time for each INTERVAL in it.
        while parser.get_next_precedence()? > 0 {
            let precedence = parser.get_next_precedence()?;
            value = parser.parse_infix(value, precedence)?;
        }
        Box::new(value)
    } else {
        Box::new(parser.parse_expr()?)
    };
    let unit = parser.parse_identifier()?;
    Ok(Expr::Interval(Interval {
        value,
        leading_field: Some(DateTimeField::Custom(unit)),
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    }))
}

fn extract(parser: &mut Parser) -> Parsed<Expr> {
    parser.expect_keyword(Keyword::EXTRACT)?;
    parser.expect_token(&Token::LParen)?;
    let field = DateTimeField::Custom(parser.parse_identifier()?);
    parser.expect_keyword(Keyword::FROM)?;
    let expr = Box::new(parser.parse_expr()?);
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Extract { field, expr, syntax: ExtractSyntax::From })
}

/// `POSITION(part IN text)`. The parser would try again without IN, in twice the time for each POSITION in it.
fn position(parser: &mut Parser) -> Parsed<Expr> {
    parser.expect_keyword(Keyword::POSITION)?;
    parser.expect_token(&Token::LParen)?;
    let between = MySqlDialect {}.prec_value(Precedence::Between);
    let expr = Box::new(parser.parse_subexpr(between)?);
    parser.expect_keyword(Keyword::IN)?;
    let r#in = Box::new(parser.parse_expr()?);
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Position { expr, r#in })
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

/// `x [NOT] REGEXP pattern`, the pattern being any expression.
fn regexp(parser: &mut Parser, expr: &Expr, precedence: u8) -> Option<Parsed<Expr>> {
    let is_regexp = |t: &Token| matches!(t, Token::Word(w) if matches!(w.keyword, Keyword::REGEXP | Keyword::RLIKE));
    let [first, second] = parser.peek_tokens::<2>();
    let negated = matches!(&first, Token::Word(w) if w.keyword == Keyword::NOT);
    if !is_regexp(if negated { &second } else { &first }) {
        return None;
    }
    if negated {
        parser.next_token();
    }
    parser.next_token();
    let pattern = parser.parse_subexpr(precedence);
    let expr = Box::new(expr.clone());
    Some(pattern.map(|pattern| Expr::RLike { negated, expr, pattern: Box::new(pattern), regexp: true }))
}

/// CAST, whose text may name the character set that it has anyway; to another one it is converted then.
fn cast(parser: &mut Parser) -> Parsed<Expr> {
    parser.expect_keyword(Keyword::CAST)?;
    parser.expect_token(&Token::LParen)?;
    let expr = Box::new(parser.parse_expr()?);
    parser.expect_keyword(Keyword::AS)?;
    let data_type = parser.parse_data_type()?;
    let is_text = matches!(data_type, DataType::Char(_) | DataType::Character(_));
    if is_text && (parser.parse_keyword(Keyword::CHARSET) || parser.parse_keywords(&[Keyword::CHARACTER, Keyword::SET]))
    {
        let name = parser.parse_identifier()?;
        parser.expect_token(&Token::RParen)?;
        let cast = Expr::Cast { kind: CastKind::Cast, expr, data_type, format: None };
        if name.value.eq_ignore_ascii_case("utf8mb4") {
            return Ok(cast);
        }
        let (expr, charset) = (Box::new(cast), Some(ObjectName::from(vec![name])));
        let (is_try, target_before_value, styles) = (false, false, Vec::new());
        return Ok(Expr::Convert { is_try, expr, data_type: None, charset, target_before_value, styles });
    }
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Cast { kind: CastKind::Cast, expr, data_type, format: None })
}

/// `CHAR(77, 121 USING utf8mb4)`.
fn char_function(parser: &mut Parser) -> Parsed<Expr> {
    parser.expect_keyword(Keyword::CHAR)?;
    parser.expect_token(&Token::LParen)?;
    let args = parser.parse_comma_separated(Parser::parse_expr)?;
    let charset = if parser.parse_keyword(Keyword::USING) { Some(parser.parse_identifier()?) } else { None };
    parser.expect_token(&Token::RParen)?;
    let made = call_of("char", args);
    Ok(match charset {
        Some(name) if !name.value.eq_ignore_ascii_case("binary") => call_of(" text", vec![made]),
        _ => made,
    })
}

/// `TRIM(BOTH FROM x)`: the form that does not say what to trim; the parser reads the others.
fn trim_spaces(parser: &mut Parser) -> Option<Parsed<Expr>> {
    let [_, _, Token::Word(side), Token::Word(from)] = parser.peek_tokens::<4>() else { return None };
    let function = match side.keyword {
        Keyword::BOTH => "trim",
        Keyword::LEADING => "ltrim",
        Keyword::TRAILING => "rtrim",
        _ => return None,
    };
    if from.keyword != Keyword::FROM {
        return None;
    }
    for _ in 0..4 {
        parser.next_token();
    }
    let text = parser.parse_expr();
    Some(text.and_then(|text| parser.expect_token(&Token::RParen).map(|_| call_of(function, vec![text]))))
}

/// `MATCH (a, b) AGAINST ('words' IN BOOLEAN MODE)`, also without the first parentheses: the mode, the query and the columns as a call of ` match`.
fn match_against(parser: &mut Parser) -> Parsed<Expr> {
    parser.parse_identifier()?;
    let in_parentheses = parser.consume_token(&Token::LParen);
    let columns = parser.parse_comma_separated(|parser| parser.parse_object_name(false))?;
    if in_parentheses {
        parser.expect_token(&Token::RParen)?;
    }
    parser.expect_keyword(Keyword::AGAINST)?;
    parser.expect_token(&Token::LParen)?;
    let query = parser.parse_subexpr(MySqlDialect {}.prec_value(Precedence::Between))?;
    let is_boolean = parser.parse_keywords(&[Keyword::IN, Keyword::BOOLEAN, Keyword::MODE]);
    let _ = !is_boolean && parser.parse_keywords(&[Keyword::IN, Keyword::NATURAL, Keyword::LANGUAGE, Keyword::MODE]);
    let is_expanded = !is_boolean && parser.parse_keywords(&[Keyword::WITH, Keyword::QUERY, Keyword::EXPANSION]);
    parser.expect_token(&Token::RParen)?;
    let mode = if is_boolean {
        " in boolean mode"
    } else if is_expanded {
        " with query expansion"
    } else {
        ""
    };
    let column = |name: ObjectName| {
        let mut parts: Vec<Ident> = name.0.iter().filter_map(|part| part.as_ident().cloned()).collect();
        if parts.len() == 1 { Expr::Identifier(parts.remove(0)) } else { Expr::CompoundIdentifier(parts) }
    };
    let mode = Expr::value(Value::SingleQuotedString(mode.to_owned()));
    Ok(call_of(MATCH, [mode, query].into_iter().chain(columns.into_iter().map(column)).collect()))
}

/// `GET_FORMAT(DATE, 'EUR')`: the first argument is a word.
fn get_format(parser: &mut Parser) -> Parsed<Expr> {
    parser.parse_identifier()?;
    parser.expect_token(&Token::LParen)?;
    let kind = parser.parse_identifier()?.value;
    parser.expect_token(&Token::Comma)?;
    let format = parser.parse_expr()?;
    parser.expect_token(&Token::RParen)?;
    Ok(call_of("get_format", vec![Expr::value(Value::SingleQuotedString(kind)), format]))
}

/// `JSON_VALUE(document, path RETURNING type ... ON EMPTY ... ON ERROR)`: the type as a cast of NULL; what is given in place of a value as an expression, an error as a call
/// of ` error`.
fn json_value(parser: &mut Parser) -> Parsed<Expr> {
    parser.parse_identifier()?;
    parser.expect_token(&Token::LParen)?;
    let document = parser.parse_expr()?;
    parser.expect_token(&Token::Comma)?;
    let path = parser.parse_expr()?;
    let null = || Expr::value(Value::Null);
    let mut returns = DataType::Char(Some(CharacterLength::IntegerLength { length: 512, unit: None }));
    if parser.parse_keyword(Keyword::RETURNING) {
        returns = parser.parse_data_type()?;
    }
    let (mut on_empty, mut on_error) = (null(), null());
    while parser.peek_token_ref().token != Token::RParen {
        let action = if parser.parse_keyword(Keyword::ERROR) {
            call_of(" error", Vec::new())
        } else if parser.parse_keyword(Keyword::DEFAULT) {
            parser.parse_expr()?
        } else {
            parser.expect_keyword(Keyword::NULL)?;
            null()
        };
        parser.expect_keyword(Keyword::ON)?;
        if parser.parse_keyword(Keyword::EMPTY) {
            on_empty = action;
        } else {
            parser.expect_keyword(Keyword::ERROR)?;
            on_error = action;
        }
    }
    parser.expect_token(&Token::RParen)?;
    let returns = Expr::Cast { kind: CastKind::Cast, expr: Box::new(null()), data_type: returns, format: None };
    Ok(call_of("json_value", vec![document, path, returns, on_empty, on_error]))
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
                let _ = crate::plan::parse(&text);
                assert!(begin.elapsed() < Duration::from_secs(5), "{text}");
            }
        }
    }
}
