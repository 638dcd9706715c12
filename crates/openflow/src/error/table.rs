//! The table of error codes: names and their numbers in each version.
//!
//! A code that a version of the standard lacks is sent as an extension's error where Open vSwitch defines one.

use super::Space::{Nicira as NICIRA, Onf as ONF, Standard as STANDARD};
use crate::version::Version::{V1_0, V1_1, V1_2, V1_3, V1_4, V1_5};

/// Numbers of a code: who defines them, first and last version, type and code.
pub(super) type Span = (super::Space, crate::version::Version, crate::version::Version, u16, u16);

macro_rules! codes {
    ($($variant:ident $name:literal [$($span:expr),*];)*) => {
        /// Reasons for refusing a message, named as in the standard and in Open vSwitch.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum ErrorCode { $(#[doc = concat!("`", $name, "`")] $variant,)* }

        impl ErrorCode {
            /// All codes.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant,)*];

            /// The name in the standard's header file.
            pub fn name(self) -> &'static str {
                match self { $(ErrorCode::$variant => $name,)* }
            }

            /// The numbers in each version.
            pub(super) fn spans(self) -> &'static [Span] {
                match self { $(ErrorCode::$variant => &[$($span),*],)* }
            }
        }
    };
}

codes! {
    HfcIncompatible "OFPHFC_INCOMPATIBLE" [(STANDARD, V1_0, V1_5, 0, 0)];
    HfcEperm "OFPHFC_EPERM" [(STANDARD, V1_0, V1_5, 0, 1)];
    BrcBadVersion "OFPBRC_BAD_VERSION" [(STANDARD, V1_0, V1_5, 1, 0)];
    BrcBadType "OFPBRC_BAD_TYPE" [(STANDARD, V1_0, V1_5, 1, 1)];
    BrcBadStat "OFPBRC_BAD_STAT" [(STANDARD, V1_0, V1_5, 1, 2)];
    BrcBadVendor "OFPBRC_BAD_VENDOR" [(STANDARD, V1_0, V1_5, 1, 3)];
    BrcBadSubtype "OFPBRC_BAD_SUBTYPE" [(STANDARD, V1_0, V1_5, 1, 4)];
    BrcEperm "OFPBRC_EPERM" [(STANDARD, V1_0, V1_5, 1, 5)];
    BrcBadLen "OFPBRC_BAD_LEN" [(STANDARD, V1_0, V1_5, 1, 6)];
    BrcBufferEmpty "OFPBRC_BUFFER_EMPTY" [(STANDARD, V1_0, V1_5, 1, 7)];
    BrcBufferUnknown "OFPBRC_BUFFER_UNKNOWN" [(STANDARD, V1_0, V1_5, 1, 8)];
    BrcBadTableId "OFPBRC_BAD_TABLE_ID" [(NICIRA, V1_0, V1_0, 1, 512), (STANDARD, V1_1, V1_5, 1, 9)];
    BrcIsSecondary "OFPBRC_IS_SECONDARY" [(STANDARD, V1_0, V1_1, 1, 5), (STANDARD, V1_2, V1_5, 1, 10)];
    BrcBadPort "OFPBRC_BAD_PORT" [(NICIRA, V1_0, V1_1, 1, 514), (STANDARD, V1_2, V1_5, 1, 11)];
    BrcBadPacket "OFPBRC_BAD_PACKET" [(STANDARD, V1_2, V1_5, 1, 12)];
    BrcMultipartBufferOverflow "OFPBRC_MULTIPART_BUFFER_OVERFLOW" [(STANDARD, V1_3, V1_5, 1, 13)];
    BrcMultipartRequestTimeout "OFPBRC_MULTIPART_REQUEST_TIMEOUT" [(ONF, V1_3, V1_3, 2640, 0), (STANDARD, V1_4, V1_5, 1, 14)];
    BrcMultipartReplyTimeout "OFPBRC_MULTIPART_REPLY_TIMEOUT" [(ONF, V1_3, V1_3, 2641, 0), (STANDARD, V1_4, V1_5, 1, 15)];
    BrcMultipartBadSched "OFPBRC_MULTIPART_BAD_SCHED" [(STANDARD, V1_5, V1_5, 1, 16)];
    BrcPipelineFieldsOnly "OFPBRC_PIPELINE_FIELDS_ONLY" [(STANDARD, V1_5, V1_5, 1, 17)];
    BrcUnknown "OFPBRC_UNKNOWN" [(STANDARD, V1_5, V1_5, 1, 18)];
    NxBrcNxmInvalid "NXBRC_NXM_INVALID" [(NICIRA, V1_0, V1_1, 1, 256), (NICIRA, V1_2, V1_5, 2, 0)];
    NxBrcNxmBadType "NXBRC_NXM_BAD_TYPE" [(NICIRA, V1_0, V1_1, 1, 257), (NICIRA, V1_2, V1_5, 3, 0)];
    NxBrcMustBeZero "NXBRC_MUST_BE_ZERO" [(NICIRA, V1_0, V1_1, 1, 515), (NICIRA, V1_2, V1_5, 4, 0)];
    NxBrcBadReason "NXBRC_BAD_REASON" [(NICIRA, V1_0, V1_1, 1, 516), (NICIRA, V1_2, V1_5, 5, 0)];
    NxBrcFmBadEvent "NXBRC_FM_BAD_EVENT" [(NICIRA, V1_0, V1_1, 1, 520), (NICIRA, V1_2, V1_5, 9, 0)];
    NxBrcUnencodableError "NXBRC_UNENCODABLE_ERROR" [(NICIRA, V1_0, V1_1, 1, 521), (NICIRA, V1_2, V1_5, 10, 0)];
    BacBadType "OFPBAC_BAD_TYPE" [(STANDARD, V1_0, V1_5, 2, 0)];
    BacBadLen "OFPBAC_BAD_LEN" [(STANDARD, V1_0, V1_5, 2, 1)];
    BacBadVendor "OFPBAC_BAD_VENDOR" [(STANDARD, V1_0, V1_5, 2, 2)];
    BacBadVendorType "OFPBAC_BAD_VENDOR_TYPE" [(STANDARD, V1_0, V1_5, 2, 3)];
    BacBadOutPort "OFPBAC_BAD_OUT_PORT" [(STANDARD, V1_0, V1_5, 2, 4)];
    BacBadArgument "OFPBAC_BAD_ARGUMENT" [(STANDARD, V1_0, V1_5, 2, 5)];
    BacEperm "OFPBAC_EPERM" [(STANDARD, V1_0, V1_5, 2, 6)];
    BacTooMany "OFPBAC_TOO_MANY" [(STANDARD, V1_0, V1_5, 2, 7)];
    BacBadQueue "OFPBAC_BAD_QUEUE" [(STANDARD, V1_0, V1_5, 2, 8)];
    BacBadOutGroup "OFPBAC_BAD_OUT_GROUP" [(NICIRA, V1_0, V1_0, 2, 9), (STANDARD, V1_1, V1_5, 2, 9)];
    BacMatchInconsistent "OFPBAC_MATCH_INCONSISTENT" [(NICIRA, V1_0, V1_0, 1, 522), (STANDARD, V1_1, V1_5, 2, 10)];
    BacUnsupportedOrder "OFPBAC_UNSUPPORTED_ORDER" [(STANDARD, V1_1, V1_5, 2, 11)];
    BacBadTag "OFPBAC_BAD_TAG" [(STANDARD, V1_1, V1_5, 2, 12)];
    BacBadSetType "OFPBAC_BAD_SET_TYPE" [(NICIRA, V1_0, V1_1, 1, 523), (STANDARD, V1_2, V1_5, 2, 13)];
    BacBadSetLen "OFPBAC_BAD_SET_LEN" [(NICIRA, V1_0, V1_1, 1, 524), (STANDARD, V1_2, V1_5, 2, 14)];
    BacBadSetArgument "OFPBAC_BAD_SET_ARGUMENT" [(NICIRA, V1_0, V1_1, 1, 525), (STANDARD, V1_2, V1_5, 2, 15)];
    BacBadSetMask "OFPBAC_BAD_SET_MASK" [(ONF, V1_3, V1_4, 4250, 0), (STANDARD, V1_5, V1_5, 2, 16)];
    BacBadMeter "OFPBAC_BAD_METER" [(STANDARD, V1_5, V1_5, 2, 17)];
    NxBacMustBeZero "NXBAC_MUST_BE_ZERO" [(NICIRA, V1_0, V1_1, 2, 256), (NICIRA, V1_2, V1_5, 11, 0)];
    NxBacBadConjunction "NXBAC_BAD_CONJUNCTION" [(NICIRA, V1_0, V1_1, 2, 526), (NICIRA, V1_2, V1_5, 15, 0)];
    NxBacBadHeaderType "NXBAC_BAD_HEADER_TYPE" [(NICIRA, V1_3, V1_5, 39, 0)];
    NxBacUnknownEdProp "NXBAC_UNKNOWN_ED_PROP" [(NICIRA, V1_3, V1_5, 40, 0)];
    NxBacBadEdProp "NXBAC_BAD_ED_PROP" [(NICIRA, V1_3, V1_5, 41, 0)];
    NxBacCtDatapathSupport "NXBAC_CT_DATAPATH_SUPPORT" [(NICIRA, V1_0, V1_1, 1, 265), (NICIRA, V1_2, V1_5, 42, 0)];
    BicUnknownInst "OFPBIC_UNKNOWN_INST" [(STANDARD, V1_1, V1_5, 3, 0)];
    BicUnsupInst "OFPBIC_UNSUP_INST" [(NICIRA, V1_0, V1_0, 2, 257), (STANDARD, V1_1, V1_5, 3, 1)];
    BicBadTableId "OFPBIC_BAD_TABLE_ID" [(STANDARD, V1_1, V1_5, 3, 2)];
    BicUnsupMetadata "OFPBIC_UNSUP_METADATA" [(STANDARD, V1_1, V1_5, 3, 3)];
    BicUnsupMetadataMask "OFPBIC_UNSUP_METADATA_MASK" [(STANDARD, V1_1, V1_5, 3, 4)];
    BicBadExperimenter "OFPBIC_BAD_EXPERIMENTER" [(STANDARD, V1_1, V1_5, 3, 5)];
    BicBadExpType "OFPBIC_BAD_EXP_TYPE" [(STANDARD, V1_1, V1_1, 3, 5), (STANDARD, V1_2, V1_5, 3, 6)];
    BicBadLen "OFPBIC_BAD_LEN" [(STANDARD, V1_2, V1_5, 3, 7)];
    BicEperm "OFPBIC_EPERM" [(STANDARD, V1_2, V1_5, 3, 8)];
    BicDupInst "OFPBIC_DUP_INST" [(NICIRA, V1_1, V1_1, 3, 256), (ONF, V1_2, V1_3, 2600, 0), (STANDARD, V1_4, V1_5, 3, 9)];
    BmcBadType "OFPBMC_BAD_TYPE" [(STANDARD, V1_1, V1_5, 4, 0)];
    BmcBadLen "OFPBMC_BAD_LEN" [(STANDARD, V1_1, V1_5, 4, 1)];
    BmcBadTag "OFPBMC_BAD_TAG" [(STANDARD, V1_1, V1_5, 4, 2)];
    BmcBadDlAddrMask "OFPBMC_BAD_DL_ADDR_MASK" [(STANDARD, V1_1, V1_5, 4, 3)];
    BmcBadNwAddrMask "OFPBMC_BAD_NW_ADDR_MASK" [(STANDARD, V1_1, V1_5, 4, 4)];
    BmcBadWildcards "OFPBMC_BAD_WILDCARDS" [(NICIRA, V1_0, V1_0, 1, 262), (STANDARD, V1_1, V1_5, 4, 5)];
    BmcBadField "OFPBMC_BAD_FIELD" [(NICIRA, V1_0, V1_0, 0, 263), (STANDARD, V1_1, V1_5, 4, 6)];
    BmcBadValue "OFPBMC_BAD_VALUE" [(NICIRA, V1_0, V1_0, 1, 258), (STANDARD, V1_1, V1_5, 4, 7)];
    BmcBadMask "OFPBMC_BAD_MASK" [(NICIRA, V1_0, V1_1, 1, 259), (STANDARD, V1_2, V1_5, 4, 8)];
    BmcBadPrereq "OFPBMC_BAD_PREREQ" [(NICIRA, V1_0, V1_1, 1, 260), (STANDARD, V1_2, V1_5, 4, 9)];
    BmcDupField "OFPBMC_DUP_FIELD" [(NICIRA, V1_0, V1_1, 1, 261), (STANDARD, V1_2, V1_5, 4, 10)];
    BmcEperm "OFPBMC_EPERM" [(STANDARD, V1_2, V1_5, 4, 11)];
    NxBmcCtDatapathSupport "NXBMC_CT_DATAPATH_SUPPORT" [(NICIRA, V1_0, V1_1, 1, 264), (NICIRA, V1_2, V1_5, 43, 0)];
    FmfcUnknown "OFPFMFC_UNKNOWN" [(STANDARD, V1_1, V1_5, 5, 0)];
    FmfcTableFull "OFPFMFC_TABLE_FULL" [(STANDARD, V1_0, V1_0, 3, 0), (STANDARD, V1_1, V1_5, 5, 1)];
    FmfcBadTableId "OFPFMFC_BAD_TABLE_ID" [(STANDARD, V1_1, V1_5, 5, 2)];
    FmfcOverlap "OFPFMFC_OVERLAP" [(STANDARD, V1_0, V1_0, 3, 1), (STANDARD, V1_1, V1_5, 5, 3)];
    FmfcEperm "OFPFMFC_EPERM" [(STANDARD, V1_0, V1_0, 3, 2), (STANDARD, V1_1, V1_5, 5, 4)];
    FmfcBadTimeout "OFPFMFC_BAD_TIMEOUT" [(STANDARD, V1_1, V1_5, 5, 5)];
    FmfcBadEmergTimeout "OFPFMFC_BAD_EMERG_TIMEOUT" [(STANDARD, V1_0, V1_0, 3, 3)];
    FmfcBadCommand "OFPFMFC_BAD_COMMAND" [(STANDARD, V1_0, V1_0, 3, 4), (STANDARD, V1_1, V1_5, 5, 6)];
    FmfcBadFlags "OFPFMFC_BAD_FLAGS" [(NICIRA, V1_0, V1_0, 3, 258), (NICIRA, V1_1, V1_1, 5, 258), (STANDARD, V1_2, V1_5, 5, 7)];
    FmfcCantSync "OFPFMFC_CANT_SYNC" [(STANDARD, V1_4, V1_5, 5, 8)];
    FmfcBadPriority "OFPFMFC_BAD_PRIORITY" [(ONF, V1_3, V1_3, 2360, 0), (STANDARD, V1_4, V1_5, 5, 9)];
    FmfcIsSync "OFPFMFC_IS_SYNC" [(STANDARD, V1_4, V1_5, 5, 10)];
    FmfcUnsupported "OFPFMFC_UNSUPPORTED" [(STANDARD, V1_0, V1_0, 3, 5)];
    NxFmfcHardware "NXFMFC_HARDWARE" [(NICIRA, V1_0, V1_1, 5, 256), (NICIRA, V1_2, V1_5, 12, 0)];
    NxFmfcBadTableId "NXFMFC_BAD_TABLE_ID" [(NICIRA, V1_0, V1_1, 5, 257), (NICIRA, V1_2, V1_5, 13, 0)];
    NxFmfcInvalidTlvField "NXFMFC_INVALID_TLV_FIELD" [(NICIRA, V1_0, V1_1, 1, 536), (NICIRA, V1_2, V1_5, 37, 0)];
    GmfcGroupExists "OFPGMFC_GROUP_EXISTS" [(NICIRA, V1_0, V1_0, 6, 0), (STANDARD, V1_1, V1_5, 6, 0)];
    GmfcInvalidGroup "OFPGMFC_INVALID_GROUP" [(NICIRA, V1_0, V1_0, 6, 1), (STANDARD, V1_1, V1_5, 6, 1)];
    GmfcWeightUnsupported "OFPGMFC_WEIGHT_UNSUPPORTED" [(NICIRA, V1_0, V1_0, 6, 2), (STANDARD, V1_1, V1_5, 6, 2)];
    GmfcOutOfGroups "OFPGMFC_OUT_OF_GROUPS" [(NICIRA, V1_0, V1_0, 6, 3), (STANDARD, V1_1, V1_5, 6, 3)];
    GmfcOutOfBuckets "OFPGMFC_OUT_OF_BUCKETS" [(NICIRA, V1_0, V1_0, 6, 4), (STANDARD, V1_1, V1_5, 6, 4)];
    GmfcChainingUnsupported "OFPGMFC_CHAINING_UNSUPPORTED" [(NICIRA, V1_0, V1_0, 6, 5), (STANDARD, V1_1, V1_5, 6, 5)];
    GmfcWatchUnsupported "OFPGMFC_WATCH_UNSUPPORTED" [(NICIRA, V1_0, V1_0, 6, 6), (STANDARD, V1_1, V1_5, 6, 6)];
    GmfcLoop "OFPGMFC_LOOP" [(NICIRA, V1_0, V1_0, 6, 7), (STANDARD, V1_1, V1_5, 6, 7)];
    GmfcUnknownGroup "OFPGMFC_UNKNOWN_GROUP" [(NICIRA, V1_0, V1_0, 6, 8), (STANDARD, V1_1, V1_5, 6, 8)];
    GmfcChainedGroup "OFPGMFC_CHAINED_GROUP" [(NICIRA, V1_0, V1_0, 6, 9), (STANDARD, V1_2, V1_5, 6, 9)];
    GmfcBadType "OFPGMFC_BAD_TYPE" [(NICIRA, V1_0, V1_0, 6, 10), (STANDARD, V1_2, V1_5, 6, 10)];
    GmfcBadCommand "OFPGMFC_BAD_COMMAND" [(NICIRA, V1_0, V1_0, 6, 11), (STANDARD, V1_2, V1_5, 6, 11)];
    GmfcBadBucket "OFPGMFC_BAD_BUCKET" [(NICIRA, V1_0, V1_0, 6, 12), (STANDARD, V1_2, V1_5, 6, 12)];
    GmfcBadWatch "OFPGMFC_BAD_WATCH" [(NICIRA, V1_0, V1_0, 6, 13), (STANDARD, V1_2, V1_5, 6, 13)];
    GmfcEperm "OFPGMFC_EPERM" [(NICIRA, V1_0, V1_0, 6, 14), (STANDARD, V1_2, V1_5, 6, 14)];
    GmfcUnknownBucket "OFPGMFC_UNKNOWN_BUCKET" [(NICIRA, V1_0, V1_0, 6, 15), (STANDARD, V1_5, V1_5, 6, 15)];
    GmfcBucketExists "OFPGMFC_BUCKET_EXISTS" [(NICIRA, V1_0, V1_0, 6, 16), (STANDARD, V1_5, V1_5, 6, 16)];
    PmfcBadPort "OFPPMFC_BAD_PORT" [(STANDARD, V1_0, V1_0, 4, 0), (STANDARD, V1_1, V1_5, 7, 0)];
    PmfcBadHwAddr "OFPPMFC_BAD_HW_ADDR" [(STANDARD, V1_0, V1_0, 4, 1), (STANDARD, V1_1, V1_5, 7, 1)];
    PmfcBadConfig "OFPPMFC_BAD_CONFIG" [(STANDARD, V1_1, V1_5, 7, 2)];
    PmfcBadAdvertise "OFPPMFC_BAD_ADVERTISE" [(STANDARD, V1_1, V1_5, 7, 3)];
    PmfcEperm "OFPPMFC_EPERM" [(STANDARD, V1_2, V1_5, 7, 4)];
    TmfcBadTable "OFPTMFC_BAD_TABLE" [(STANDARD, V1_1, V1_5, 8, 0)];
    TmfcBadConfig "OFPTMFC_BAD_CONFIG" [(STANDARD, V1_1, V1_5, 8, 1)];
    TmfcEperm "OFPTMFC_EPERM" [(STANDARD, V1_2, V1_5, 8, 2)];
    QofcBadPort "OFPQOFC_BAD_PORT" [(STANDARD, V1_0, V1_0, 5, 0), (STANDARD, V1_1, V1_5, 9, 0)];
    QofcBadQueue "OFPQOFC_BAD_QUEUE" [(STANDARD, V1_0, V1_0, 5, 1), (STANDARD, V1_1, V1_5, 9, 1)];
    QofcEperm "OFPQOFC_EPERM" [(STANDARD, V1_0, V1_0, 5, 2), (STANDARD, V1_1, V1_5, 9, 2)];
    NxQofcQueueError "NXQOFC_QUEUE_ERROR" [(NICIRA, V1_4, V1_5, 23, 0)];
    ScfcBadFlags "OFPSCFC_BAD_FLAGS" [(STANDARD, V1_1, V1_5, 10, 0)];
    ScfcBadLen "OFPSCFC_BAD_LEN" [(STANDARD, V1_1, V1_5, 10, 1)];
    ScfcEperm "OFPSCFC_EPERM" [(STANDARD, V1_2, V1_5, 10, 2)];
    RrfcStale "OFPRRFC_STALE" [(STANDARD, V1_2, V1_5, 11, 0)];
    RrfcUnsup "OFPRRFC_UNSUP" [(STANDARD, V1_2, V1_5, 11, 1)];
    RrfcBadRole "OFPRRFC_BAD_ROLE" [(NICIRA, V1_0, V1_1, 1, 513), (STANDARD, V1_2, V1_5, 11, 2)];
    RrfcIdUnsup "OFPRRFC_ID_UNSUP" [(STANDARD, V1_5, V1_5, 11, 3)];
    RrfcIdInUse "OFPRRFC_ID_IN_USE" [(STANDARD, V1_5, V1_5, 11, 4)];
    MmfcUnknown "OFPMMFC_UNKNOWN" [(STANDARD, V1_3, V1_5, 12, 0)];
    MmfcMeterExists "OFPMMFC_METER_EXISTS" [(STANDARD, V1_3, V1_5, 12, 1)];
    MmfcInvalidMeter "OFPMMFC_INVALID_METER" [(STANDARD, V1_3, V1_5, 12, 2)];
    MmfcUnknownMeter "OFPMMFC_UNKNOWN_METER" [(STANDARD, V1_3, V1_5, 12, 3)];
    MmfcBadCommand "OFPMMFC_BAD_COMMAND" [(STANDARD, V1_3, V1_5, 12, 4)];
    MmfcBadFlags "OFPMMFC_BAD_FLAGS" [(STANDARD, V1_3, V1_5, 12, 5)];
    MmfcBadRate "OFPMMFC_BAD_RATE" [(STANDARD, V1_3, V1_5, 12, 6)];
    MmfcBadBurst "OFPMMFC_BAD_BURST" [(STANDARD, V1_3, V1_5, 12, 7)];
    MmfcBadBand "OFPMMFC_BAD_BAND" [(STANDARD, V1_3, V1_5, 12, 8)];
    MmfcBadBandValue "OFPMMFC_BAD_BAND_VALUE" [(STANDARD, V1_3, V1_5, 12, 9)];
    MmfcOutOfMeters "OFPMMFC_OUT_OF_METERS" [(STANDARD, V1_3, V1_5, 12, 10)];
    MmfcOutOfBands "OFPMMFC_OUT_OF_BANDS" [(STANDARD, V1_3, V1_5, 12, 11)];
    TffcBadTable "OFPTFFC_BAD_TABLE" [(STANDARD, V1_3, V1_5, 13, 0)];
    TffcBadMetadata "OFPTFFC_BAD_METADATA" [(STANDARD, V1_3, V1_5, 13, 1)];
    TffcEperm "OFPTFFC_EPERM" [(STANDARD, V1_3, V1_5, 13, 5)];
    TffcBadCapa "OFPTFFC_BAD_CAPA" [(STANDARD, V1_5, V1_5, 13, 6)];
    TffcBadMaxEnt "OFPTFFC_BAD_MAX_ENT" [(STANDARD, V1_5, V1_5, 13, 7)];
    TffcBadFeatures "OFPTFFC_BAD_FEATURES" [(STANDARD, V1_5, V1_5, 13, 8)];
    TffcBadCommand "OFPTFFC_BAD_COMMAND" [(STANDARD, V1_5, V1_5, 13, 9)];
    TffcTooMany "OFPTFFC_TOO_MANY" [(STANDARD, V1_5, V1_5, 13, 10)];
    NxTffcDupTable "NXTFFC_DUP_TABLE" [(NICIRA, V1_3, V1_5, 44, 0)];
    BpcBadType "OFPBPC_BAD_TYPE" [(NICIRA, V1_0, V1_1, 13, 2), (NICIRA, V1_2, V1_2, 25, 0), (STANDARD, V1_3, V1_3, 13, 2), (STANDARD, V1_4, V1_5, 14, 0)];
    BpcBadLen "OFPBPC_BAD_LEN" [(NICIRA, V1_0, V1_1, 13, 3), (NICIRA, V1_2, V1_2, 26, 0), (STANDARD, V1_3, V1_3, 13, 3), (STANDARD, V1_4, V1_5, 14, 1)];
    BpcBadValue "OFPBPC_BAD_VALUE" [(NICIRA, V1_0, V1_1, 13, 4), (NICIRA, V1_2, V1_2, 27, 0), (STANDARD, V1_3, V1_3, 13, 4), (STANDARD, V1_4, V1_5, 14, 2)];
    BpcTooMany "OFPBPC_TOO_MANY" [(NICIRA, V1_0, V1_1, 14, 3), (NICIRA, V1_2, V1_2, 28, 0), (ONF, V1_3, V1_3, 4443, 0), (STANDARD, V1_4, V1_5, 14, 3)];
    BpcDupType "OFPBPC_DUP_TYPE" [(NICIRA, V1_0, V1_1, 14, 4), (NICIRA, V1_2, V1_2, 29, 0), (ONF, V1_3, V1_3, 4444, 0), (STANDARD, V1_4, V1_5, 14, 4)];
    BpcBadExperimenter "OFPBPC_BAD_EXPERIMENTER" [(NICIRA, V1_0, V1_1, 14, 5), (NICIRA, V1_2, V1_2, 30, 0), (ONF, V1_3, V1_3, 4445, 0), (STANDARD, V1_4, V1_5, 14, 5)];
    BpcBadExpType "OFPBPC_BAD_EXP_TYPE" [(NICIRA, V1_0, V1_1, 14, 6), (NICIRA, V1_2, V1_2, 31, 0), (ONF, V1_3, V1_3, 4446, 0), (STANDARD, V1_4, V1_5, 14, 6)];
    BpcBadExpValue "OFPBPC_BAD_EXP_VALUE" [(NICIRA, V1_0, V1_1, 14, 7), (NICIRA, V1_2, V1_2, 32, 0), (ONF, V1_3, V1_3, 4447, 0), (STANDARD, V1_4, V1_5, 14, 7)];
    BpcEperm "OFPBPC_EPERM" [(NICIRA, V1_0, V1_1, 14, 8), (NICIRA, V1_2, V1_2, 33, 0), (ONF, V1_3, V1_3, 4448, 0), (STANDARD, V1_4, V1_5, 14, 8)];
    AcfcInvalid "OFPACFC_INVALID" [(ONF, V1_3, V1_3, 2370, 0), (STANDARD, V1_4, V1_5, 15, 0)];
    AcfcUnsupported "OFPACFC_UNSUPPORTED" [(ONF, V1_3, V1_3, 2371, 0), (STANDARD, V1_4, V1_5, 15, 1)];
    AcfcEperm "OFPACFC_EPERM" [(ONF, V1_3, V1_3, 2372, 0), (STANDARD, V1_4, V1_5, 15, 2)];
    BfcUnknown "OFPBFC_UNKNOWN" [(ONF, V1_3, V1_3, 2300, 0), (STANDARD, V1_4, V1_5, 17, 0)];
    BfcEperm "OFPBFC_EPERM" [(ONF, V1_3, V1_3, 2301, 0), (STANDARD, V1_4, V1_5, 17, 1)];
    BfcBadId "OFPBFC_BAD_ID" [(ONF, V1_3, V1_3, 2302, 0), (STANDARD, V1_4, V1_5, 17, 2)];
    BfcBundleExist "OFPBFC_BUNDLE_EXIST" [(ONF, V1_3, V1_3, 2303, 0), (STANDARD, V1_4, V1_5, 17, 3)];
    BfcBundleClosed "OFPBFC_BUNDLE_CLOSED" [(ONF, V1_3, V1_3, 2304, 0), (STANDARD, V1_4, V1_5, 17, 4)];
    BfcOutOfBundles "OFPBFC_OUT_OF_BUNDLES" [(ONF, V1_3, V1_3, 2305, 0), (STANDARD, V1_4, V1_5, 17, 5)];
    BfcBadType "OFPBFC_BAD_TYPE" [(ONF, V1_3, V1_3, 2306, 0), (STANDARD, V1_4, V1_5, 17, 6)];
    BfcBadFlags "OFPBFC_BAD_FLAGS" [(ONF, V1_3, V1_3, 2307, 0), (STANDARD, V1_4, V1_5, 17, 7)];
    BfcMsgBadLen "OFPBFC_MSG_BAD_LEN" [(ONF, V1_3, V1_3, 2308, 0), (STANDARD, V1_4, V1_5, 17, 8)];
    BfcMsgBadXid "OFPBFC_MSG_BAD_XID" [(ONF, V1_3, V1_3, 2309, 0), (STANDARD, V1_4, V1_5, 17, 9)];
    BfcMsgUnsup "OFPBFC_MSG_UNSUP" [(ONF, V1_3, V1_3, 2310, 0), (STANDARD, V1_4, V1_5, 17, 10)];
    BfcMsgConflict "OFPBFC_MSG_CONFLICT" [(ONF, V1_3, V1_3, 2311, 0), (STANDARD, V1_4, V1_5, 17, 11)];
    BfcMsgTooMany "OFPBFC_MSG_TOO_MANY" [(ONF, V1_3, V1_3, 2312, 0), (STANDARD, V1_4, V1_5, 17, 12)];
    BfcMsgFailed "OFPBFC_MSG_FAILED" [(ONF, V1_3, V1_3, 2313, 0), (STANDARD, V1_4, V1_5, 17, 13)];
    BfcTimeout "OFPBFC_TIMEOUT" [(ONF, V1_3, V1_3, 2314, 0), (STANDARD, V1_4, V1_5, 17, 14)];
    BfcBundleInProgress "OFPBFC_BUNDLE_IN_PROGRESS" [(ONF, V1_3, V1_3, 2315, 0), (STANDARD, V1_4, V1_5, 17, 15)];
    BfcSchedNotSupported "OFPBFC_SCHED_NOT_SUPPORTED" [(STANDARD, V1_5, V1_5, 17, 16)];
    BfcSchedFuture "OFPBFC_SCHED_FUTURE" [(STANDARD, V1_5, V1_5, 17, 17)];
    BfcSchedPast "OFPBFC_SCHED_PAST" [(STANDARD, V1_5, V1_5, 17, 18)];
    BfcBadVersion "OFPBFC_BAD_VERSION" [(NICIRA, V1_4, V1_5, 22, 0)];
    MofcUnknown "OFPMOFC_UNKNOWN" [(STANDARD, V1_4, V1_5, 16, 0)];
    MofcMonitorExists "OFPMOFC_MONITOR_EXISTS" [(NICIRA, V1_0, V1_1, 1, 517), (NICIRA, V1_2, V1_3, 6, 0), (STANDARD, V1_4, V1_5, 16, 1)];
    MofcInvalidMonitor "OFPMOFC_INVALID_MONITOR" [(STANDARD, V1_4, V1_5, 16, 2)];
    MofcUnknownMonitor "OFPMOFC_UNKNOWN_MONITOR" [(NICIRA, V1_0, V1_1, 1, 519), (NICIRA, V1_2, V1_3, 8, 0), (STANDARD, V1_4, V1_5, 16, 3)];
    MofcBadCommand "OFPMOFC_BAD_COMMAND" [(STANDARD, V1_4, V1_5, 16, 4)];
    MofcBadFlags "OFPMOFC_BAD_FLAGS" [(NICIRA, V1_0, V1_1, 1, 518), (NICIRA, V1_2, V1_3, 7, 0), (STANDARD, V1_4, V1_5, 16, 5)];
    MofcBadTableId "OFPMOFC_BAD_TABLE_ID" [(STANDARD, V1_4, V1_5, 16, 6)];
    MofcBadOut "OFPMOFC_BAD_OUT" [(STANDARD, V1_4, V1_5, 16, 7)];
    NxTtmfcBadCommand "NXTTMFC_BAD_COMMAND" [(NICIRA, V1_0, V1_1, 1, 527), (NICIRA, V1_2, V1_5, 16, 0)];
    NxTtmfcBadOptLen "NXTTMFC_BAD_OPT_LEN" [(NICIRA, V1_0, V1_1, 1, 528), (NICIRA, V1_2, V1_5, 17, 0)];
    NxTtmfcBadFieldIdx "NXTTMFC_BAD_FIELD_IDX" [(NICIRA, V1_0, V1_1, 1, 529), (NICIRA, V1_2, V1_5, 18, 0)];
    NxTtmfcTableFull "NXTTMFC_TABLE_FULL" [(NICIRA, V1_0, V1_1, 1, 530), (NICIRA, V1_2, V1_5, 19, 0)];
    NxTtmfcAlreadyMapped "NXTTMFC_ALREADY_MAPPED" [(NICIRA, V1_0, V1_1, 1, 531), (NICIRA, V1_2, V1_5, 20, 0)];
    NxTtmfcDupEntry "NXTTMFC_DUP_ENTRY" [(NICIRA, V1_0, V1_1, 1, 532), (NICIRA, V1_2, V1_5, 21, 0)];
    NxTtmfcInvalidTlvDel "NXTTMFC_INVALID_TLV_DEL" [(NICIRA, V1_0, V1_1, 1, 537), (NICIRA, V1_2, V1_5, 38, 0)];
    NxResumeNotSupported "NXR_NOT_SUPPORTED" [(NICIRA, V1_0, V1_1, 1, 533), (NICIRA, V1_2, V1_5, 34, 0)];
    NxResumeStale "NXR_STALE" [(NICIRA, V1_0, V1_1, 1, 534), (NICIRA, V1_2, V1_5, 35, 0)];
    NxStNotConfigured "NXST_NOT_CONFIGURED" [(NICIRA, V1_0, V1_1, 1, 535), (NICIRA, V1_2, V1_5, 36, 0)];
}
