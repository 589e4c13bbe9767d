//! SVG 1.1 pictures with a light background of their own, so that they are legible on light and
//! dark pages, and text in a few classes.

use std::fmt::{Arguments, Display, Write};
use std::ops::Sub;

/// A picture being drawn. Positions are in pixels from the top left corner.
#[derive(Debug, Default)]
pub(super) struct Svg {
    body: String,
}

impl Svg {
    /// Adds text in the class `title`, `group`, `note` or one of the picture's own.
    pub(super) fn text(&mut self, x: impl Display, y: impl Display, class: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.put(format_args!("<text x='{x}' y='{y}' class='{class}'>{text}</text>"));
    }

    /// Adds an element.
    pub(super) fn put(&mut self, line: Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "{line}");
    }

    /// Returns the whole file with this size and additional CSS classes.
    pub(super) fn finish<N>(self, width: N, height: N, classes: &str) -> String
    where
        N: Copy + Display + From<u8> + Sub<Output = N>,
    {
        let body = self.body;
        format!(
            "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' \
             viewBox='0 0 {width} {height}' font-family='sans-serif'>\n\
             <style>{STYLE}{classes}</style>\n\
             <rect x='0.5' y='0.5' width='{}' height='{}' rx='8' fill='#fbfbfa' \
             stroke='#b8b8b4'/>\n{body}</svg>\n",
            width - N::from(1),
            height - N::from(1)
        )
    }
}

const STYLE: &str = "text{fill:#2b2b2b;font-size:12px}.title{font-size:16px;font-weight:bold}\
                     .group{font-weight:bold}.note{fill:#55554f}";
