//! Bars, as SVG: a value of each of some series in each of some classes, on a logarithmic scale.

use std::fmt::Write;

/// The size, and where the bars are in it.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 60.0;

/// The ends of the scale are ten to the power of these.
const LEAST: i32 = -1;
const MOST: i32 = 4;

#[derive(Debug)]
pub struct Picture {
    pub title: String,
    /// What the classes are, and what their values.
    pub axes: (String, String),
    pub classes: Vec<String>,
    /// The name, the colour and the values of each series.
    pub series: Vec<(String, &'static str, Vec<f64>)>,
}

impl Picture {
    /// The file. Texts must have no characters that mean something in XML.
    pub fn svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"#222\">\n\
             <title>{title}</title>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n",
            title = self.title
        );
        text(&mut svg, (LEFT, 24.0), "start", &self.title);
        self.legend(&mut svg);
        self.scale(&mut svg);
        self.bars(&mut svg);
        svg + "</svg>\n"
    }

    fn legend(&self, svg: &mut String) {
        let mut x = LEFT;
        for (name, colour, _) in &self.series {
            rectangle(svg, (x, 40.0), (12.0, 12.0), colour);
            text(svg, (x + 18.0, 50.0), "start", name);
            x += 60.0 + 7.5 * count(name.chars().count());
        }
    }

    fn scale(&self, svg: &mut String) {
        for power in LEAST..=MOST {
            let value = 10_f64.powi(power);
            let y = height_of(value);
            line(svg, y);
            text(svg, (LEFT - 8.0, y + 4.0), "end", &value.to_string());
        }
        let (classes, values) = &self.axes;
        text(svg, (f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 14.0), "middle", classes);
        text(svg, (WIDTH - RIGHT, TOP - 8.0), "end", values);
    }

    fn bars(&self, svg: &mut String) {
        let each = (WIDTH - LEFT - RIGHT) / count(self.classes.len().max(1));
        let wide = each * 0.8 / count(self.series.len().max(1));
        for (number, class) in self.classes.iter().enumerate() {
            let left = LEFT + each * count(number);
            text(svg, (left + each / 2.0, HEIGHT - BOTTOM + 20.0), "middle", class);
            for (place, (_, colour, values)) in self.series.iter().enumerate() {
                let value = values.get(number).copied().unwrap_or(0.0);
                let (x, y) = (left + each * 0.1 + wide * count(place), height_of(value));
                rectangle(svg, (x, y), (wide * 0.9, HEIGHT - BOTTOM - y), colour);
            }
        }
    }
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// How far from the top a value is.
fn height_of(value: f64) -> f64 {
    let least = f64::from(LEAST);
    let part = (value.max(10_f64.powi(LEAST)).log10() - least) / (f64::from(MOST) - least);
    HEIGHT - BOTTOM - part.clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP)
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    add(svg, format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"));
}

fn line(svg: &mut String, y: f64) {
    let right = WIDTH - RIGHT;
    add(svg, format_args!("<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>"));
}

fn rectangle(svg: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
    add(
        svg,
        format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        ),
    );
}

fn add(svg: &mut String, element: std::fmt::Arguments<'_>) {
    // A text takes all that is written to it.
    let _ = writeln!(svg, "{element}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_logarithmic_and_bars_end_in_the_picture() {
        let (bottom, top) = (height_of(0.0), height_of(1e9));
        assert!((bottom - (HEIGHT - BOTTOM)).abs() < 1e-9 && (top - TOP).abs() < 1e-9);
        let step = height_of(1.0) - height_of(10.0);
        assert!((step - (height_of(100.0) - height_of(1_000.0))).abs() < 1e-9 && step > 0.0);
    }

    #[test]
    fn each_value_has_a_bar() {
        let picture = Picture {
            title: "Waits".to_owned(),
            axes: ("groups".to_owned(), "seconds".to_owned()),
            classes: vec!["small".to_owned(), "large".to_owned()],
            series: vec![("a".to_owned(), "#111", vec![1.0, 10.0]), ("b".to_owned(), "#999", vec![100.0])],
        };
        let svg = picture.svg();
        // The ground, two in the legend, and four bars, one of which is empty.
        assert_eq!(svg.matches("<rect").count(), 7);
        assert!(svg.contains("height=\"0.0\" fill=\"#999\""), "{svg}");
        assert!(
            svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains(">large</text>"),
            "{svg}"
        );
    }
}
