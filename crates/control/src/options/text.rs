//! A deserializer for texts: each value is converted to the type of the struct's field.
//!
//! So `secret=12` is the text "12" and `id=12` the number 12, without further notation.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use serde::de::value::{Error, SeqDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

/// A table of text values.
pub(super) struct Table<'a>(pub(super) &'a BTreeMap<String, String>);

impl<'de> Deserializer<'de> for Table<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Entries { rest: self.0.iter(), current: None })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct Entries<'a> {
    rest: std::collections::btree_map::Iter<'a, String, String>,
    current: Option<(&'a str, &'a str)>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.current = Some((key, value));
        let key: StrDeserializer<'_, Error> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let (key, value) = self.current.take().unwrap_or_default();
        seed.deserialize(Text(value)).map_err(|error| Error::custom(format_args!("`{key}`: {error}")))
    }
}

struct Text<'a>(&'a str);

fn parse<T: FromStr>(text: &str, expected: impl Display) -> Result<T, Error> {
    text.trim().parse().map_err(|_| Error::custom(format_args!("`{text}` is not {expected}")))
}

impl IntoDeserializer<'_, Error> for Text<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! numbers {
    ($($deserialize:ident $visit:ident $kind:ty),* $(,)?) => {
        $(fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let range = format_args!("a whole number from {} to {}", <$kind>::MIN, <$kind>::MAX);
            visitor.$visit(parse(self.0, range)?)
        })*
    };
}

impl<'de> Deserializer<'de> for Text<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.0)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.trim() {
            "true" | "on" => visitor.visit_bool(true),
            "false" | "off" => visitor.visit_bool(false),
            other => Err(Error::custom(format_args!("`{other}` is neither `on` nor `off`"))),
        }
    }

    numbers! {
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64,
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(SeqDeserializer::new(self.0.split(',').map(Text)))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let variant: StrDeserializer<'_, Error> = self.0.into_deserializer();
        variant.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct map struct identifier
        ignored_any
    }
}
