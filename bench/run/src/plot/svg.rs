//! Elements of SVG.

use std::fmt::Write;

/// Horizontal position of a text relative to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture under construction. Coordinates are in pixels from the upper left corner.
#[derive(Debug)]
pub(super) struct Svg {
    body: String,
    width: f64,
    height: f64,
}

impl Svg {
    /// An empty picture with a description for readers who do not see it.
    pub(super) fn new(width: f64, height: f64, description: &str) -> Svg {
        Svg { body: format!("<title>{}</title>\n", escape(description)), width, height }
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        ));
    }

    /// A text from bottom to top, centred at its point.
    pub(super) fn upright(&mut self, x: f64, y: f64, text: &str) {
        let text = escape(text);
        self.add(format_args!(
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"middle\" class=\"name\">{text}</text>"
        ));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.add(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        ));
    }

    pub(super) fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), fill: &str, hint: &str) {
        let ((x, y), (width, height)) = (at, size);
        let hint = escape(hint);
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"><title>{hint}</title></rect>"
        ));
    }

    pub(super) fn path(&mut self, points: &[(f64, f64)], colour: &str, dashed: bool) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dash = if dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        self.add(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{dash}/>",
            points.join(" ")
        ));
    }

    /// A marker, whose shape depends on the series.
    pub(super) fn marker(&mut self, at: (f64, f64), series: usize, hint: &str) {
        let (x, y) = at;
        let colour = super::colour(series);
        let hint = escape(hint);
        let shape = match series % 4 {
            0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\""),
            1 => format!("<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7.4\" height=\"7.4\"", x - 3.7, y - 3.7),
            2 => format!("<path d=\"M{x:.1} {:.1}l4.6 8h-9.2z\"", y - 5.2),
            _ => format!("<path d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\"", y - 5.0),
        };
        self.add(format_args!(
            "{shape} fill=\"{colour}\" stroke=\"#fff\" stroke-width=\"0.8\"><title>{hint}</title></{}>",
            match series % 4 {
                0 => "circle",
                1 => "rect",
                _ => "path",
            }
        ));
    }

    /// The complete picture.
    pub(super) fn finish(self) -> String {
        let Svg { body, width, height } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\">\n<style>{STYLE}</style>\n<rect width=\"{width:.0}\" \
             height=\"{height:.0}\" fill=\"#fff\"/>\n{body}</svg>\n"
        )
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "{element}");
    }
}

const STYLE: &str = "text{font-family:DejaVu Sans,Verdana,Helvetica,sans-serif;fill:#222}.head{font-size:15px;font-weight:bold}\
.name{font-size:12.5px}.tick{font-size:12px}.small{font-size:10.5px}.grid{stroke:#ddd}.axis{stroke:#444}.whisker{stroke:#222;stroke-width:1.2}";

/// Escapes text for SVG and HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let mut svg = Svg::new(10.0, 10.0, "a<b");
        svg.text(1.0, 2.0, Anchor::Middle, "tick", "<script>\"&");
        let text = svg.finish();
        assert!(text.contains("&lt;script&gt;&quot;&amp;</text>") && text.contains("a&lt;b"), "{text}");
        assert!(!text.contains("<script"));
    }
}
