//! Prometheus' text format 0.0.4: families of samples with help and type.
//!
//! Implemented here as a snapshot is reported, not live metrics as crates have; and since it is
//! also read from a file, where the OpenMetrics form loses the type of a counter.
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>

use std::fmt::{Display, Write};

/// Type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the format knows few more, and we use these")]
pub enum Kind {
    /// Monotonic, except for restarts.
    Counter,
    /// A current value.
    Gauge,
}

/// Labels of a sample.
#[derive(Clone, Debug, Default)]
pub struct Labels(String);

impl Labels {
    /// One label.
    pub fn new(name: &str, value: &str) -> Self {
        Self::default().with(name, value)
    }

    /// Adds a label.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        let comma = if self.0.is_empty() { "" } else { "," };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        self.0 += &format!("{comma}{name}=\"{value}\"");
        self
    }
}

/// Text under construction.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

impl Exposition {
    /// Appends a family, unless it has no samples.
    pub fn put<V: Display>(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let name = format!("{PREFIX}{name}");
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
        for (Labels(labels), value) in samples {
            match labels.as_str() {
                "" => self.line(format_args!("{name} {value}")),
                labels => self.line(format_args!("{name}{{{labels}}} {value}")),
            }
        }
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

/// Prefix of all our names.
const PREFIX: &str = "tapswitch_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_its_help_its_type_and_its_samples() {
        let mut out = Exposition::default();
        let named = |value| Labels::new("port", value).with("reason", "a\\b\"c\nd");
        out.put("x_total", Kind::Counter, "Things.", [(named("1"), 3), (named("2"), 4)]);
        out.put("y", Kind::Gauge, "Others.", [(Labels::new("a", ""), 0.25)]);
        out.put("w", Kind::Gauge, "One.", [(Labels::default(), 7)]);
        out.put("z", Kind::Gauge, "None.", std::iter::empty::<(Labels, u64)>());
        let expected = concat!(
            "# HELP tapswitch_x_total Things.\n",
            "# TYPE tapswitch_x_total counter\n",
            "tapswitch_x_total{port=\"1\",reason=\"a\\\\b\\\"c\\nd\"} 3\n",
            "tapswitch_x_total{port=\"2\",reason=\"a\\\\b\\\"c\\nd\"} 4\n",
            "# HELP tapswitch_y Others.\n",
            "# TYPE tapswitch_y gauge\n",
            "tapswitch_y{a=\"\"} 0.25\n",
            "# HELP tapswitch_w One.\n",
            "# TYPE tapswitch_w gauge\n",
            "tapswitch_w 7\n",
        );
        assert_eq!(out.into_text(), expected);
    }
}
