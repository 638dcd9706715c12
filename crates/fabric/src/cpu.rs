//! Instruction sets: the few loops that copy packets are compiled for several levels of the architecture; a worker
//! selects one when it starts.
//!
//! The levels are those of the x86-64 psABI (x86-64-v3 has AVX2, x86-64-v4 AVX-512); other architectures only have the
//! baseline. A loop is written once, as an `#[inline(always)]` method; `each_level!` makes a copy of it for each level.

/// A level of the instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The level that the program is compiled for.
    Baseline,
    /// x86-64-v3: moves of 32 bytes.
    V3,
    /// x86-64-v4: moves of 64 bytes, a cache line.
    V4,
}

impl Level {
    /// The highest level that this CPU has.
    pub fn detected() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let v3 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("movbe");
            let v4 = v3
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512cd")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            match (v3, v4) {
                (_, true) => Level::V4,
                (true, _) => Level::V3,
                _ => Level::Baseline,
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Level::Baseline
    }
}

/// Defines a method that calls another, `#[inline(always)]` one, compiled for the given level: `fn NAME [V3, V4](self:
/// TYPE, ARGUMENT: TYPE...) = BODY at LEVEL;`. `V3` and `V4` are names for the copies.
macro_rules! each_level {
    ($(#[$doc:meta])* fn $name:ident [$v3:ident, $v4:ident]($self:ident: $Self:ty $(, $arg:ident: $T:ty)*) $(-> $R:ty)?
        = $body:ident at $level:expr;) => {
        $(#[$doc])*
        #[inline]
        fn $name($self: $Self $(, $arg: $T)*) $(-> $R)? {
            match $level {
                // SAFETY: `Level::detected` found the features that the copy is compiled for.
                #[cfg(target_arch = "x86_64")]
                $crate::cpu::Level::V4 => unsafe { $self.$v4($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::cpu::Level::V3 => unsafe { $self.$v3($($arg),*) },
                _ => $self.$body($($arg),*),
            }
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe")]
        fn $v3($self: $Self $(, $arg: $T)*) $(-> $R)? {
            $self.$body($($arg),*)
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
        fn $v4($self: $Self $(, $arg: $T)*) $(-> $R)? {
            $self.$body($($arg),*)
        }
    };
}
pub(crate) use each_level;
