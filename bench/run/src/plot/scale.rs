//! Scales: from values to pixels, and where ticks go.

/// Kinds of scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// From 0; distances are proportional.
    Linear,
    /// Powers of ten are equally far apart. For positive values only.
    Logarithmic,
}

/// A scale.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Scale {
    /// A scale for these values. Those that it cannot show are ignored.
    pub(super) fn of(kind: Kind, values: impl IntoIterator<Item = f64>) -> Scale {
        let shown =
            values.into_iter().filter(|value| value.is_finite() && (kind == Kind::Linear || *value > 0.0));
        let (low, high) =
            shown.fold((f64::MAX, 0f64), |(low, high), value| (low.min(value), high.max(value)));
        match kind {
            Kind::Linear => Scale::linear(high),
            Kind::Logarithmic => Scale::logarithmic(low, high),
        }
    }

    /// A scale from the first of these ticks to the last.
    pub(super) fn with_ticks(kind: Kind, ticks: &[f64]) -> Scale {
        let low = if kind == Kind::Linear { 0.0 } else { ticks.first().copied().unwrap_or(1.0) };
        Scale { kind, low, high: ticks.last().copied().unwrap_or(1.0), ticks: ticks.into() }
    }

    /// From 0 to a round number at or above the highest value, with 4 to 8 steps.
    fn linear(high: f64) -> Scale {
        let high = if high > 0.0 { high } else { 1.0 };
        let power = 10f64.powf((high / 8.0).log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
        let step = step.into_iter().find(|step| high / step <= 8.0).unwrap_or(10.0 * power);
        let count = (high / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=count as u32).map(|tick| f64::from(tick) * step).collect();
        Scale { kind: Kind::Linear, low: 0.0, high: count * step, ticks }
    }

    /// Between powers of ten; with fewer than two of them, also 2 and 5 have ticks.
    fn logarithmic(low: f64, high: f64) -> Scale {
        let (low, high) = if low <= high { (low, high) } else { (1.0, 10.0) };
        let (first, last) =
            (low.log10().floor() as i32, (high.log10().ceil() as i32).max(low.log10().floor() as i32 + 1));
        let factors: &[f64] = if last - first <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let powers = (first..=last).map(|power| 10f64.powi(power));
        let ticks = powers.flat_map(|power| factors.iter().map(move |factor| factor * power));
        let (low, high) = (10f64.powi(first), 10f64.powi(last));
        Scale {
            kind: Kind::Logarithmic,
            low,
            high,
            ticks: ticks.filter(|tick| *tick <= high * 1.0001).collect(),
        }
    }

    /// Position of a value: 0 at the beginning, 1 at the end. Values outside are at the nearer end.
    pub(super) fn position(&self, value: f64) -> f64 {
        let share = match self.kind {
            Kind::Linear => (value - self.low) / (self.high - self.low),
            Kind::Logarithmic => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        share.clamp(0.0, 1.0)
    }

    /// Values with ticks, in ascending order.
    pub(super) fn ticks(&self) -> &[f64] {
        &self.ticks
    }
}

/// A number with as many digits as it needs.
pub(super) fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        size if size >= 10.0 => 0,
        size if size >= 1.0 => 1,
        size if size >= 0.1 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_scales_end_at_round_numbers() {
        let of = |value| Scale::of(Kind::Linear, [value]);
        assert_eq!(of(13.4).ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]);
        assert_eq!(of(1.0).ticks().last(), Some(&1.0));
        assert_eq!(of(0.0).ticks().last(), Some(&1.0));
        for value in [0.003, 0.07, 0.99, 1.01, 7.9, 8.1, 99.0, 12_345.0] {
            let scale = of(value);
            let highest = *scale.ticks().last().unwrap();
            assert!(highest >= value && highest <= value * 1.5, "{value}: {scale:?}");
            assert!((4..=9).contains(&scale.ticks().len()), "{value}: {scale:?}");
        }
    }

    #[test]
    fn logarithmic_scales_span_powers_of_ten() {
        let scale = Scale::of(Kind::Logarithmic, [3.0, 4000.0, 0.0]);
        assert_eq!(scale.ticks(), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        assert!((scale.position(100.0) - 0.5).abs() < 1e-9);
        assert_eq!(scale.position(0.0), 0.0);
        assert_eq!(Scale::of(Kind::Logarithmic, [5.0]).ticks(), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!(Scale::of(Kind::Logarithmic, []).ticks(), [1.0, 2.0, 5.0, 10.0]);
    }

    #[test]
    fn scales_with_ticks_end_at_them() {
        let scale = Scale::with_ticks(Kind::Logarithmic, &[2.0, 8.0, 32.0]);
        assert_eq!([2.0, 8.0, 32.0].map(|value| scale.position(value)), [0.0, 0.5, 1.0]);
        let scale = Scale::with_ticks(Kind::Linear, &[0.0, 5.0, 100.0]);
        assert_eq!([0.0, 50.0, 100.0].map(|value| scale.position(value)), [0.0, 0.5, 1.0]);
    }

    #[test]
    fn numbers_are_short() {
        let of = |values: [f64; 5]| values.map(number);
        assert_eq!(of([0.0, 0.5, 2.5, 10.0, 1000.0]), ["0", "0.5", "2.5", "10", "1000"]);
        assert_eq!(number(0.025), "0.025");
    }
}
