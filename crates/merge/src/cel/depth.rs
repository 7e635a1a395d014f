//! How deep an expression may be. The parser and the evaluator call themselves for each level, with frames of many kilobytes,
//! and a stack that overflows ends the process.

use super::CelError;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Brackets inside each other (cel-go's limit, and its words).
const BRACKETS_MAX: usize = 250;
/// Operators, which may all be on top of each other (`1+1+1`, `a.b.c`, `!!!`). The longest rules that are known have some 300.
const OPERATORS_MAX: usize = 400;
/// Code points (cel-go's limit, and its words).
const SIZE_MAX: usize = 100_000;
/// Bytes of stack that are kept for parsing and evaluating; only what is used is taken from the machine.
const STACK: usize = 512 << 20;
/// Brackets and operators with which any thread's stack will do, also in a build that is not optimised.
const SHALLOW: (usize, usize) = (6, 40);

/// Whether it may take more stack than threads have. Refuses a text that could be too deep, before anything recursive looks
/// at it.
pub(super) fn check(source: &str) -> Result<bool, CelError> {
    let size = source.chars().count();
    if size > SIZE_MAX {
        return Err(CelError(format!("expression code point size exceeds limit: size: {size}, limit {SIZE_MAX}")));
    }
    let (mut brackets, mut deepest, mut operators) = (0usize, 0, 0);
    let (mut quote, mut escaped) = (None, false);
    for c in source.chars() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => {
                brackets += 1;
                deepest = deepest.max(brackets);
            }
            (None, ')' | ']' | '}') => brackets = brackets.saturating_sub(1),
            (None, '+' | '-' | '*' | '/' | '%' | '!' | '.' | '?' | '&' | '|' | '<' | '>' | '=') => operators += 1,
            (None, _) => {}
        }
    }
    // a quote that a raw text leaves open hides what follows: then brackets of all kinds count
    let opened = source.chars().filter(|c| matches!(c, '(' | '[' | '{')).count();
    let hidden = source.contains("r\"") || source.contains("r'") || source.contains("R\"") || source.contains("R'");
    if deepest > BRACKETS_MAX || operators > OPERATORS_MAX || (hidden && opened > OPERATORS_MAX) {
        return Err(CelError(format!("expression recursion limit exceeded: {BRACKETS_MAX}")));
    }
    Ok(hidden || deepest > SHALLOW.0 || operators > SHALLOW.1)
}

/// Parses on a stack of its own. The library panics on some texts that are no expressions.
pub(super) fn deeply<T>(parse: impl FnOnce() -> Result<T, CelError>) -> Result<T, CelError> {
    let parse = || catch_unwind(AssertUnwindSafe(parse));
    stacker::grow(STACK, parse).unwrap_or_else(|_| Err(CelError("the expression cannot be parsed".to_owned())))
}

/// Evaluates, on another stack where this one may not do.
pub(super) fn with_enough_stack<T>(deep: bool, evaluate: impl FnOnce() -> T) -> T {
    if deep { stacker::grow(STACK, evaluate) } else { evaluate() }
}

#[cfg(test)]
mod tests {
    use crate::cel::Expression;

    #[test]
    fn no_expression_overflows_the_stack() {
        for n in [10, 100, 260, 390, 40_000] {
            let sources = [
                vec!["1"; n].join("+"),
                vec!["true"; n].join("&&"),
                "a".to_owned() + &".a".repeat(n),
                "!".repeat(n) + "true",
                "-".repeat(n) + "1",
                "(".repeat(n) + "1" + &")".repeat(n),
                "[".repeat(n) + "1" + &"]".repeat(n),
                "[".repeat(n),
                "true ? 1 : ".repeat(n) + "1",
                "r\"\\\" + \"".to_owned() + &"(".repeat(n),
                "a[".repeat(n) + "1" + &"]".repeat(n),
                "{1:".repeat(n) + "1" + &"}".repeat(n),
            ];
            for source in sources {
                if let Ok(expression) = Expression::compile(&source) {
                    assert!(n <= 400, "{n}: {}", &source[..10]);
                    drop(expression.evaluate(&[]));
                }
            }
        }
    }
}
