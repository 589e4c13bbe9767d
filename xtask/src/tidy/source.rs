//! A Rust file as the rules see it: tokens, comments, functions, and which lines are test code.

use std::ops::Range;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, ImplItemFn, Item, ItemFn, Signature, TraitItemFn, UseTree};

use super::Violation;

/// One parsed file.
pub(crate) struct Source {
    /// Relative to the workspace.
    pub(crate) path: String,
    /// All lines, without line ends.
    pub(crate) lines: Vec<String>,
    /// Tokens of the code, in order. Delimiters are tokens, and `::` is one token.
    pub(crate) tokens: Vec<Token>,
    /// Comments and doc comments, one line each.
    pub(crate) comments: Vec<Token>,
    /// Full paths that `use` imports.
    pub(crate) uses: Vec<Token>,
    /// All functions with a body, including tests.
    pub(crate) functions: Vec<Function>,
    /// Lines of items that exist only for tests.
    tests: Vec<Range<usize>>,
}

/// A piece of text and the number of its first line, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Line of the `fn`.
    pub(crate) line: usize,
    /// Number of lines from the `fn` to the closing brace.
    pub(crate) len: usize,
}

impl Source {
    /// Parses `text`, the contents of `path`.
    pub(crate) fn parse(path: &str, text: &str) -> syn::Result<Self> {
        let file = syn::parse_file(text)?;
        let stream: TokenStream = text.parse()?;
        let mut scan = Scan::new(text);
        scan.tokens(stream);
        scan.gap(scan.end..text.len());
        let mut tree = Tree::default();
        tree.visit_file(&file);
        Ok(Self {
            path: path.to_owned(),
            lines: text.lines().map(str::to_owned).collect(),
            tokens: scan.tokens,
            comments: scan.comments,
            uses: tree.uses,
            functions: tree.functions,
            tests: tree.tests,
        })
    }

    /// True if `line` is production code.
    pub(crate) fn is_production(&self, line: usize) -> bool {
        let is_test_file = self.path.split('/').any(|part| TEST_FOLDERS.contains(&part));
        !is_test_file && !self.tests.iter().any(|lines| lines.contains(&line))
    }

    /// The functions of production code, each with its file.
    pub(crate) fn production_functions(&self) -> Vec<(String, Function)> {
        let production = self.functions.iter().filter(|f| self.is_production(f.line));
        production.map(|f| (self.path.clone(), f.clone())).collect()
    }

    /// The lines on which `pattern`, a piece of Rust, starts in the code.
    pub(crate) fn find(&self, pattern: &str) -> Vec<usize> {
        let mut wanted = Scan::new(pattern);
        wanted.tokens(pattern.parse().unwrap_or_default());
        let texts: Vec<_> = wanted.tokens.iter().map(|token| &token.text).collect();
        let windows = self.tokens.windows(texts.len().max(1));
        windows
            .filter(|window| window.iter().map(|token| &token.text).eq(texts.iter().copied()))
            .map(|window| window[0].line)
            .collect()
    }

    /// Makes a violation in this file.
    pub(crate) fn violation(&self, line: usize, message: impl Into<String>) -> Violation {
        Violation::new(&self.path, line, message)
    }
}

/// A walk over the tokens that collects the comments between them.
struct Scan<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    comments: Vec<Token>,
    /// Byte offset of the end of the last token.
    end: usize,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, tokens: Vec::new(), comments: Vec::new(), end: 0 }
    }

    fn tokens(&mut self, stream: TokenStream) {
        for tree in stream {
            match tree {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::None => ("", ""),
                    };
                    self.token(open, group.span_open());
                    self.tokens(group.stream());
                    self.token(close, group.span_close());
                }
                TokenTree::Punct(punct) => self.token(&punct.to_string(), punct.span()),
                TokenTree::Ident(ident) => self.token(&ident.to_string(), ident.span()),
                TokenTree::Literal(literal) => self.token("literal", literal.span()),
            }
        }
    }

    fn token(&mut self, text: &str, span: proc_macro2::Span) {
        let bytes = span.byte_range();
        let written = self.text.get(bytes.clone()).unwrap_or_default();
        let line = span.start().line;
        // The compiler sees a doc comment as an attribute with several tokens, all at its position.
        if written.starts_with("//") || written.starts_with("/*") {
            if bytes.end > self.end {
                self.gap(self.end..bytes.end);
            }
            return;
        }
        self.gap(self.end..bytes.start);
        match self.tokens.last_mut() {
            Some(last) if text == ":" && last.text == ":" && self.end == bytes.start => {
                last.text.push(':');
            }
            _ => self.tokens.push(Token { text: text.to_owned(), line }),
        }
        self.end = self.end.max(bytes.end);
    }

    /// Records the text between two tokens, which is blank or a comment.
    fn gap(&mut self, bytes: Range<usize>) {
        let Some(gap) = self.text.get(bytes.clone()) else {
            return;
        };
        self.end = bytes.end;
        if gap.trim().is_empty() {
            return;
        }
        let first_line = self.text[..bytes.start].lines().count().max(1);
        let starts_new = self.text[..bytes.start].ends_with('\n');
        for (line, text) in (first_line + usize::from(starts_new)..).zip(gap.split('\n')) {
            if !text.trim().is_empty() {
                let text = text.trim().to_owned();
                self.comments.push(Token { text, line });
            }
        }
    }
}

/// A walk over the syntax tree.
#[derive(Default)]
struct Tree {
    uses: Vec<Token>,
    functions: Vec<Function>,
    tests: Vec<Range<usize>>,
}

impl Tree {
    fn function(&mut self, signature: &Signature, body: &Block) {
        let line = signature.fn_token.span.start().line;
        let last = body.brace_token.span.close().end().line;
        self.functions.push(Function {
            name: signature.ident.to_string(),
            line,
            len: last - line + 1,
        });
    }

    fn use_tree(&mut self, tree: &UseTree, prefix: &str) {
        let line = tree.span().start().line;
        let mut push = |text: String| self.uses.push(Token { text, line });
        match tree {
            UseTree::Path(path) => self.use_tree(&path.tree, &format!("{prefix}{}::", path.ident)),
            UseTree::Name(name) => push(format!("{prefix}{}", name.ident)),
            UseTree::Rename(rename) => push(format!("{prefix}{}", rename.ident)),
            UseTree::Glob(_) => push(format!("{prefix}*")),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.use_tree(tree, prefix);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Tree {
    fn visit_item(&mut self, item: &'ast Item) {
        if let Item::Use(item) = item {
            self.use_tree(&item.tree, "");
        }
        if attributes(item).iter().any(is_for_tests) {
            let span = item.span();
            self.tests.push(span.start().line..span.end().line + 1);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// True for `#[test]` and for a `#[cfg]` that mentions `test`.
fn is_for_tests(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    let Ok(list) = attribute.meta.require_list() else {
        return false;
    };
    let words: Vec<_> = list.tokens.clone().into_iter().map(|t| t.to_string()).collect();
    attribute.path().is_ident("cfg") && words.iter().any(|word| word == "test")
}

/// Folders of test code.
const TEST_FOLDERS: [&str; 3] = ["tests", "benches", "examples"];

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = r#"//! Head.
use std::{net::TcpStream, thread};

/// Says "hello // not a comment".
fn hello() -> &'static str {
    // First
    let url = "http://example"; /* second
    third */
    std::thread::spawn(url)
}

trait Named {
    fn name(&self);
    fn shout(&self) {}
}

#[cfg(test)]
mod tests {
    fn inside() {}
}
"#;

    #[test]
    fn comments_are_found_and_strings_are_not() {
        let comments: Vec<_> = example().comments.into_iter().map(|c| (c.line, c.text)).collect();
        let expected = [
            (1, "//! Head."),
            (4, "/// Says \"hello // not a comment\"."),
            (6, "// First"),
            (7, "/* second"),
            (8, "third */"),
        ];
        assert_eq!(comments, expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn code_is_found_whatever_its_spacing() {
        assert_eq!(example().find("std :: thread :: spawn"), [9]);
        assert_eq!(example().find("http"), [0usize; 0]);
        let uses: Vec<_> = example().uses.into_iter().map(|u| u.text).collect();
        assert_eq!(uses, ["std::net::TcpStream", "std::thread"]);
    }

    #[test]
    fn functions_have_lengths_and_tests_are_told_apart() {
        let source = example();
        let all: Vec<_> = source.functions.iter().map(|f| (&*f.name, f.line, f.len)).collect();
        assert_eq!(all, [("hello", 5, 6), ("shout", 14, 1), ("inside", 19, 1)]);
        let names: Vec<_> =
            source.production_functions().into_iter().map(|(_, f)| f.name).collect();
        assert_eq!(names, ["hello", "shout"]);
        let test_file = Source::parse("crates/a/tests/b.rs", EXAMPLE).unwrap();
        assert!(test_file.production_functions().is_empty());
    }

    fn example() -> Source {
        Source::parse("crates/a/src/lib.rs", EXAMPLE).unwrap()
    }
}
