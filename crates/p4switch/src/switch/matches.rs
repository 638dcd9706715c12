//! Conditions: those of entries, and of value sets' members.

use p4runtime_proto::v1::{FieldMatch, field_match, field_match::FieldMatchType};
use pipeline::bits::Bits;
use pipeline::ir::{KeyMatch, Match, MatchKind};

use crate::schema::{Field, field};
use crate::{Failure, bytestring};

/// Reads conditions; they come in the order of the keys. Exact keys must have one.
pub(super) fn read(fields: &[Field], given: &[FieldMatch]) -> Result<Vec<Match>, Failure> {
    let mut matches = Vec::with_capacity(given.len());
    let mut sorted = true;
    for (near, item) in given.iter().enumerate() {
        let Some((at, field)) = field(fields, item.field_id, near) else {
            let known: Vec<_> = fields.iter().map(|field| format!("{} {}", field.id, field.name)).collect();
            return Err(Failure::invalid(format!(
                "there is no key {} (known: {})",
                item.field_id,
                known.join(", ")
            )));
        };
        let is = condition(field, item).map_err(|failure| failure.at(format_args!("key {}", field.name)))?;
        let key = u32::try_from(at).unwrap_or(u32::MAX);
        sorted &= matches.last().is_none_or(|last: &Match| last.key < key);
        matches.push(Match { key, is });
    }
    if !sorted {
        matches.sort_by_key(|condition| condition.key);
        let twice = matches.windows(2).find_map(|pair| match pair {
            [a, b] if a.key == b.key => Some(a.key),
            _ => None,
        });
        if let Some(field) = twice.and_then(|key| fields.get(key as usize)) {
            return Err(Failure::invalid(format!("key {} is given twice", field.name)));
        }
    }
    let mut left = matches.iter().peekable();
    for (key, field) in (0..).zip(fields) {
        let given = left.next_if(|condition| condition.key == key).is_some();
        if !given && field.kind == MatchKind::Exact {
            return Err(Failure::invalid(format!("key {} is matched exactly and is missing", field.name)));
        }
    }
    Ok(matches)
}

fn condition(field: &Field, item: &FieldMatch) -> Result<KeyMatch, Failure> {
    let number =
        |bytes: &[u8]| bytestring::unsigned(bytes, field.width).map(|bits| bits.resize(field.ir_width));
    let width = field.ir_width;
    match (&item.field_match_type, field.kind) {
        (Some(FieldMatchType::Exact(exact)), MatchKind::Exact) => Ok(KeyMatch::Exact(number(&exact.value)?)),
        (Some(FieldMatchType::Optional(optional)), MatchKind::Optional) => {
            Ok(KeyMatch::Exact(number(&optional.value)?))
        }
        (Some(FieldMatchType::Lpm(lpm)), MatchKind::Lpm) => {
            let value = number(&lpm.value)?;
            let length = u16::try_from(lpm.prefix_len).ok().filter(|length| *length <= width);
            match length {
                None => Err(Failure::invalid(format!(
                    "the prefix has {} bits (expected 1 to {width})",
                    lpm.prefix_len
                ))),
                Some(0) => Err(Failure::invalid("a prefix of 0 bits matches anything: leave the key out")),
                Some(length) if !value.shl(length.into()).is_zero() => {
                    Err(Failure::invalid("bits of the value behind the prefix are not 0"))
                }
                Some(length) => Ok(KeyMatch::Prefix(value, length)),
            }
        }
        (Some(FieldMatchType::Ternary(ternary)), MatchKind::Ternary) => {
            let (value, mask) = (number(&ternary.value)?, number(&ternary.mask)?);
            if mask.is_zero() {
                return Err(Failure::invalid("a mask of 0 matches anything: leave the key out"));
            }
            if value.and(&mask) != value {
                return Err(Failure::invalid("bits of the value outside the mask are not 0"));
            }
            Ok(KeyMatch::Mask(value, mask))
        }
        (Some(FieldMatchType::Range(range)), MatchKind::Range) => {
            let (low, high) = (number(&range.low)?, number(&range.high)?);
            if low > high {
                return Err(Failure::invalid("the range's start is behind its end"));
            }
            if low.is_zero() && high == Bits::ones(width) {
                return Err(Failure::invalid("a range of all values matches anything: leave the key out"));
            }
            Ok(KeyMatch::Range(low, high))
        }
        (given, kind) => {
            Err(Failure::invalid(format!("it is matched {}, not {}", kind.name(), kind_of(given.as_ref()))))
        }
    }
}

fn kind_of(given: Option<&FieldMatchType>) -> &'static str {
    match given {
        Some(FieldMatchType::Exact(_)) => "exact",
        Some(FieldMatchType::Ternary(_)) => "ternary",
        Some(FieldMatchType::Lpm(_)) => "lpm",
        Some(FieldMatchType::Range(_)) => "range",
        Some(FieldMatchType::Optional(_)) => "optional",
        Some(FieldMatchType::Other(_)) => "otherwise",
        None => "unset",
    }
}

/// Writes conditions.
pub(super) fn write(fields: &[Field], matches: &[Match]) -> Vec<FieldMatch> {
    let one = |condition: &Match| {
        let field = fields.get(condition.key as usize)?;
        Some(FieldMatch { field_id: field.id, field_match_type: Some(written(field, &condition.is)?) })
    };
    matches.iter().filter_map(one).collect()
}

/// Writes a condition; `None` if it matches anything.
pub(super) fn written(field: &Field, is: &KeyMatch) -> Option<FieldMatchType> {
    let bytes = bytestring::of;
    Some(match (is, field.kind) {
        (KeyMatch::Exact(value), MatchKind::Optional) => {
            FieldMatchType::Optional(field_match::Optional { value: bytes(value) })
        }
        (KeyMatch::Exact(value), _) => FieldMatchType::Exact(field_match::Exact { value: bytes(value) }),
        (KeyMatch::Prefix(_, 0), _) => return None,
        (KeyMatch::Prefix(value, length), _) => {
            FieldMatchType::Lpm(field_match::Lpm { value: bytes(value), prefix_len: (*length).into() })
        }
        (KeyMatch::Mask(_, mask), _) if mask.is_zero() => return None,
        (KeyMatch::Mask(value, mask), _) => {
            FieldMatchType::Ternary(field_match::Ternary { value: bytes(value), mask: bytes(mask) })
        }
        (KeyMatch::Range(low, high), _) if low.is_zero() && *high == Bits::ones(high.width()) => return None,
        (KeyMatch::Range(low, high), _) => {
            FieldMatchType::Range(field_match::Range { low: bytes(low), high: bytes(high) })
        }
    })
}
