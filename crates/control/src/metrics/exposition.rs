//! Prometheus' text format 0.0.4: families of samples, each preceded by its help and type.
//!
//! Implemented here because the format is simple and the available client libraries write OpenMetrics, where the name
//! of a counter's family differs from that of its samples: Prometheus' linter, which reads the older format, reports
//! such counters as lacking help and type.

use std::fmt::{Display, Write};

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A value that only increases, until its object restarts.
    Counter,
    /// A value that can increase and decrease.
    Gauge,
}

/// Labels of a sample, formatted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Labels(String);

impl Labels {
    pub(super) fn new(pairs: &[(&str, &str)]) -> Self {
        pairs.iter().fold(Self::default(), |labels, (name, value)| labels.and(name, value))
    }

    /// Returns these labels and one more.
    pub(super) fn and(&self, name: &str, value: &str) -> Self {
        let comma = if self.0.is_empty() { "" } else { "," };
        let mut text = format!("{}{comma}{name}=\"", self.0);
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
        Self(text)
    }
}

/// A document in the text format.
#[derive(Debug, Default)]
pub(super) struct Document(String);

impl Document {
    /// Starts a family, whose samples follow.
    pub(super) fn family<'d>(&'d mut self, name: &'d str, kind: Kind, help: &str) -> Family<'d> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text: &mut self.0, name }
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// The last family of a document.
pub(super) struct Family<'d> {
    text: &'d mut String,
    name: &'d str,
}

impl Family<'_> {
    pub(super) fn sample(&mut self, labels: &Labels, value: impl Display) {
        let (name, labels) = (self.name, &labels.0);
        // Writing to a String cannot fail.
        let _ = match labels.as_str() {
            "" => writeln!(self.text, "{name} {value}"),
            labels => writeln!(self.text, "{name}{{{labels}}} {value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_samples() {
        let mut document = Document::default();
        let mut up = document.family("a_up", Kind::Gauge, "Whether a is up.");
        up.sample(&Labels::new(&[("bridge", "br0"), ("port", "vm1")]), 1);
        document.family("a_seconds_total", Kind::Counter, "Time.").sample(&Labels::default(), 0.25);
        assert_eq!(
            document.finish(),
            "# HELP a_up Whether a is up.\n# TYPE a_up gauge\na_up{bridge=\"br0\",port=\"vm1\"} 1\n\
             # HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\na_seconds_total 0.25\n"
        );
    }

    #[test]
    fn label_values_are_escaped() {
        assert_eq!(Labels::new(&[("x", "a\"b\\c\nd")]).0, "x=\"a\\\"b\\\\c\\nd\"");
    }
}
