//! The names of character sets and collations, with MySQL's numbers: which there are, and what belongs together.

macro_rules! charsets {
    ($($variant:ident $name:literal $description:literal $longest:literal $default:ident $binary:ident;)*) => {
        /// Which characters a text may have, and how MySQL writes them.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Charset { $($variant,)* }

        impl Charset {
            /// By their names.
            pub const ALL: [Charset; [$($longest),*].len()] = [$(Charset::$variant,)*];

            pub fn name(self) -> &'static str {
                match self { $(Charset::$variant => $name,)* }
            }
            /// MySQL's words for it.
            pub fn description(self) -> &'static str {
                match self { $(Charset::$variant => $description,)* }
            }
            /// Most bytes of a character, in MySQL.
            pub fn bytes_of_character(self) -> u8 {
                match self { $(Charset::$variant => $longest,)* }
            }
            /// The collation of who names the character set alone.
            pub fn default_collation(self) -> Collation {
                match self { $(Charset::$variant => Collation::$default,)* }
            }
            /// Its collation that compares codes.
            pub fn binary_collation(self) -> Collation {
                match self { $(Charset::$variant => Collation::$binary,)* }
            }
        }
    };
}

macro_rules! collations {
    ($($variant:ident $id:literal $charset:ident $name:literal;)*) => {
        /// One of MySQL's collations.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Collation { $($variant,)* }

        impl Collation {
            /// Those of a character set stand together, its default first.
            pub const ALL: [Collation; [$($id),*].len()] = [$(Collation::$variant,)*];
            /// MySQL's name.
            pub fn name(self) -> &'static str {
                match self { $(Collation::$variant => $name,)* }
            }
            /// MySQL's collation id.
            pub fn id(self) -> u16 {
                match self { $(Collation::$variant => $id,)* }
            }
            pub fn charset(self) -> Charset {
                match self { $(Collation::$variant => Charset::$charset,)* }
            }
        }
    };
}

charsets! {
    Armscii8 "armscii8" "ARMSCII-8 Armenian" 1 Armscii8GeneralCi Armscii8Bin;
    Ascii "ascii" "US ASCII" 1 AsciiGeneralCi AsciiBin;
    Big5 "big5" "Big5 Traditional Chinese" 2 Big5ChineseCi Big5Bin;
    Binary "binary" "Binary pseudo charset" 1 Binary Binary;
    Cp1250 "cp1250" "Windows Central European" 1 Cp1250GeneralCi Cp1250Bin;
    Cp1251 "cp1251" "Windows Cyrillic" 1 Cp1251GeneralCi Cp1251Bin;
    Cp1256 "cp1256" "Windows Arabic" 1 Cp1256GeneralCi Cp1256Bin;
    Cp1257 "cp1257" "Windows Baltic" 1 Cp1257GeneralCi Cp1257Bin;
    Cp850 "cp850" "DOS West European" 1 Cp850GeneralCi Cp850Bin;
    Cp852 "cp852" "DOS Central European" 1 Cp852GeneralCi Cp852Bin;
    Cp866 "cp866" "DOS Russian" 1 Cp866GeneralCi Cp866Bin;
    Cp932 "cp932" "SJIS for Windows Japanese" 2 Cp932JapaneseCi Cp932Bin;
    Dec8 "dec8" "DEC West European" 1 Dec8SwedishCi Dec8Bin;
    Eucjpms "eucjpms" "UJIS for Windows Japanese" 3 EucjpmsJapaneseCi EucjpmsBin;
    Euckr "euckr" "EUC-KR Korean" 2 EuckrKoreanCi EuckrBin;
    Gb18030 "gb18030" "China National Standard GB18030" 4 Gb18030ChineseCi Gb18030Bin;
    Gb2312 "gb2312" "GB2312 Simplified Chinese" 2 Gb2312ChineseCi Gb2312Bin;
    Gbk "gbk" "GBK Simplified Chinese" 2 GbkChineseCi GbkBin;
    Geostd8 "geostd8" "GEOSTD8 Georgian" 1 Geostd8GeneralCi Geostd8Bin;
    Greek "greek" "ISO 8859-7 Greek" 1 GreekGeneralCi GreekBin;
    Hebrew "hebrew" "ISO 8859-8 Hebrew" 1 HebrewGeneralCi HebrewBin;
    Hp8 "hp8" "HP West European" 1 Hp8EnglishCi Hp8Bin;
    Keybcs2 "keybcs2" "DOS Kamenicky Czech-Slovak" 1 Keybcs2GeneralCi Keybcs2Bin;
    Koi8r "koi8r" "KOI8-R Relcom Russian" 1 Koi8rGeneralCi Koi8rBin;
    Koi8u "koi8u" "KOI8-U Ukrainian" 1 Koi8uGeneralCi Koi8uBin;
    Latin1 "latin1" "cp1252 West European" 1 Latin1SwedishCi Latin1Bin;
    Latin2 "latin2" "ISO 8859-2 Central European" 1 Latin2GeneralCi Latin2Bin;
    Latin5 "latin5" "ISO 8859-9 Turkish" 1 Latin5TurkishCi Latin5Bin;
    Latin7 "latin7" "ISO 8859-13 Baltic" 1 Latin7GeneralCi Latin7Bin;
    Macce "macce" "Mac Central European" 1 MacceGeneralCi MacceBin;
    Macroman "macroman" "Mac West European" 1 MacromanGeneralCi MacromanBin;
    Sjis "sjis" "Shift-JIS Japanese" 2 SjisJapaneseCi SjisBin;
    Tis620 "tis620" "TIS620 Thai" 1 Tis620ThaiCi Tis620Bin;
    Ucs2 "ucs2" "UCS-2 Unicode" 2 Ucs2GeneralCi Ucs2Bin;
    Ujis "ujis" "EUC-JP Japanese" 3 UjisJapaneseCi UjisBin;
    Utf16 "utf16" "UTF-16 Unicode" 4 Utf16GeneralCi Utf16Bin;
    Utf16le "utf16le" "UTF-16LE Unicode" 4 Utf16leGeneralCi Utf16leBin;
    Utf32 "utf32" "UTF-32 Unicode" 4 Utf32GeneralCi Utf32Bin;
    Utf8mb3 "utf8mb3" "UTF-8 Unicode" 3 Utf8mb3GeneralCi Utf8mb3Bin;
    Utf8mb4 "utf8mb4" "UTF-8 Unicode" 4 Utf8mb40900AiCi Utf8mb4Bin;
}

collations! {
    Armscii8GeneralCi 32 Armscii8 "armscii8_general_ci";
    Armscii8Bin 64 Armscii8 "armscii8_bin";
    AsciiGeneralCi 11 Ascii "ascii_general_ci";
    AsciiBin 65 Ascii "ascii_bin";
    Big5ChineseCi 1 Big5 "big5_chinese_ci";
    Big5Bin 84 Big5 "big5_bin";
    Binary 63 Binary "binary";
    Cp1250GeneralCi 26 Cp1250 "cp1250_general_ci";
    Cp1250CroatianCi 44 Cp1250 "cp1250_croatian_ci";
    Cp1250Bin 66 Cp1250 "cp1250_bin";
    Cp1250PolishCi 99 Cp1250 "cp1250_polish_ci";
    Cp1251GeneralCi 51 Cp1251 "cp1251_general_ci";
    Cp1251BulgarianCi 14 Cp1251 "cp1251_bulgarian_ci";
    Cp1251UkrainianCi 23 Cp1251 "cp1251_ukrainian_ci";
    Cp1251Bin 50 Cp1251 "cp1251_bin";
    Cp1251GeneralCs 52 Cp1251 "cp1251_general_cs";
    Cp1256GeneralCi 57 Cp1256 "cp1256_general_ci";
    Cp1256Bin 67 Cp1256 "cp1256_bin";
    Cp1257GeneralCi 59 Cp1257 "cp1257_general_ci";
    Cp1257LithuanianCi 29 Cp1257 "cp1257_lithuanian_ci";
    Cp1257Bin 58 Cp1257 "cp1257_bin";
    Cp850GeneralCi 4 Cp850 "cp850_general_ci";
    Cp850Bin 80 Cp850 "cp850_bin";
    Cp852GeneralCi 40 Cp852 "cp852_general_ci";
    Cp852Bin 81 Cp852 "cp852_bin";
    Cp866GeneralCi 36 Cp866 "cp866_general_ci";
    Cp866Bin 68 Cp866 "cp866_bin";
    Cp932JapaneseCi 95 Cp932 "cp932_japanese_ci";
    Cp932Bin 96 Cp932 "cp932_bin";
    Dec8SwedishCi 3 Dec8 "dec8_swedish_ci";
    Dec8Bin 69 Dec8 "dec8_bin";
    EucjpmsJapaneseCi 97 Eucjpms "eucjpms_japanese_ci";
    EucjpmsBin 98 Eucjpms "eucjpms_bin";
    EuckrKoreanCi 19 Euckr "euckr_korean_ci";
    EuckrBin 85 Euckr "euckr_bin";
    Gb18030ChineseCi 248 Gb18030 "gb18030_chinese_ci";
    Gb18030Bin 249 Gb18030 "gb18030_bin";
    Gb18030Unicode520Ci 250 Gb18030 "gb18030_unicode_520_ci";
    Gb2312ChineseCi 24 Gb2312 "gb2312_chinese_ci";
    Gb2312Bin 86 Gb2312 "gb2312_bin";
    GbkChineseCi 28 Gbk "gbk_chinese_ci";
    GbkBin 87 Gbk "gbk_bin";
    Geostd8GeneralCi 92 Geostd8 "geostd8_general_ci";
    Geostd8Bin 93 Geostd8 "geostd8_bin";
    GreekGeneralCi 25 Greek "greek_general_ci";
    GreekBin 70 Greek "greek_bin";
    HebrewGeneralCi 16 Hebrew "hebrew_general_ci";
    HebrewBin 71 Hebrew "hebrew_bin";
    Hp8EnglishCi 6 Hp8 "hp8_english_ci";
    Hp8Bin 72 Hp8 "hp8_bin";
    Keybcs2GeneralCi 37 Keybcs2 "keybcs2_general_ci";
    Keybcs2Bin 73 Keybcs2 "keybcs2_bin";
    Koi8rGeneralCi 7 Koi8r "koi8r_general_ci";
    Koi8rBin 74 Koi8r "koi8r_bin";
    Koi8uGeneralCi 22 Koi8u "koi8u_general_ci";
    Koi8uBin 75 Koi8u "koi8u_bin";
    Latin1SwedishCi 8 Latin1 "latin1_swedish_ci";
    Latin1German1Ci 5 Latin1 "latin1_german1_ci";
    Latin1DanishCi 15 Latin1 "latin1_danish_ci";
    Latin1German2Ci 31 Latin1 "latin1_german2_ci";
    Latin1Bin 47 Latin1 "latin1_bin";
    Latin1GeneralCi 48 Latin1 "latin1_general_ci";
    Latin1GeneralCs 49 Latin1 "latin1_general_cs";
    Latin1SpanishCi 94 Latin1 "latin1_spanish_ci";
    Latin2GeneralCi 9 Latin2 "latin2_general_ci";
    Latin2HungarianCi 21 Latin2 "latin2_hungarian_ci";
    Latin2CroatianCi 27 Latin2 "latin2_croatian_ci";
    Latin2Bin 77 Latin2 "latin2_bin";
    Latin5TurkishCi 30 Latin5 "latin5_turkish_ci";
    Latin5Bin 78 Latin5 "latin5_bin";
    Latin7GeneralCi 41 Latin7 "latin7_general_ci";
    Latin7EstonianCs 20 Latin7 "latin7_estonian_cs";
    Latin7GeneralCs 42 Latin7 "latin7_general_cs";
    Latin7Bin 79 Latin7 "latin7_bin";
    MacceGeneralCi 38 Macce "macce_general_ci";
    MacceBin 43 Macce "macce_bin";
    MacromanGeneralCi 39 Macroman "macroman_general_ci";
    MacromanBin 53 Macroman "macroman_bin";
    SjisJapaneseCi 13 Sjis "sjis_japanese_ci";
    SjisBin 88 Sjis "sjis_bin";
    Tis620ThaiCi 18 Tis620 "tis620_thai_ci";
    Tis620Bin 89 Tis620 "tis620_bin";
    Ucs2GeneralCi 35 Ucs2 "ucs2_general_ci";
    Ucs2Bin 90 Ucs2 "ucs2_bin";
    Ucs2UnicodeCi 128 Ucs2 "ucs2_unicode_ci";
    Ucs2Unicode520Ci 150 Ucs2 "ucs2_unicode_520_ci";
    UjisJapaneseCi 12 Ujis "ujis_japanese_ci";
    UjisBin 91 Ujis "ujis_bin";
    Utf16GeneralCi 54 Utf16 "utf16_general_ci";
    Utf16Bin 55 Utf16 "utf16_bin";
    Utf16UnicodeCi 101 Utf16 "utf16_unicode_ci";
    Utf16Unicode520Ci 123 Utf16 "utf16_unicode_520_ci";
    Utf16leGeneralCi 56 Utf16le "utf16le_general_ci";
    Utf16leBin 62 Utf16le "utf16le_bin";
    Utf32GeneralCi 60 Utf32 "utf32_general_ci";
    Utf32Bin 61 Utf32 "utf32_bin";
    Utf32UnicodeCi 160 Utf32 "utf32_unicode_ci";
    Utf32Unicode520Ci 182 Utf32 "utf32_unicode_520_ci";
    Utf8mb3GeneralCi 33 Utf8mb3 "utf8mb3_general_ci";
    Utf8mb3Bin 83 Utf8mb3 "utf8mb3_bin";
    Utf8mb3UnicodeCi 192 Utf8mb3 "utf8mb3_unicode_ci";
    Utf8mb3Unicode520Ci 214 Utf8mb3 "utf8mb3_unicode_520_ci";
    Utf8mb40900AiCi 255 Utf8mb4 "utf8mb4_0900_ai_ci";
    Utf8mb4GeneralCi 45 Utf8mb4 "utf8mb4_general_ci";
    Utf8mb4Bin 46 Utf8mb4 "utf8mb4_bin";
    Utf8mb4UnicodeCi 224 Utf8mb4 "utf8mb4_unicode_ci";
    Utf8mb4Unicode520Ci 246 Utf8mb4 "utf8mb4_unicode_520_ci";
    Utf8mb40900AsCs 278 Utf8mb4 "utf8mb4_0900_as_cs";
    Utf8mb40900AsCi 305 Utf8mb4 "utf8mb4_0900_as_ci";
    Utf8mb40900Bin 309 Utf8mb4 "utf8mb4_0900_bin";
}

impl Default for Collation {
    fn default() -> Collation {
        Collation::DEFAULT
    }
}

impl Charset {
    /// MySQL calls utf8mb3 also utf8.
    pub fn from_name(name: &str) -> Option<Charset> {
        let name = if name.eq_ignore_ascii_case("utf8") { "utf8mb3" } else { name };
        Self::ALL.into_iter().find(|c| c.name().eq_ignore_ascii_case(name))
    }
    /// MySQL's bytes are those of UTF-8, as texts are kept here.
    pub fn is_utf8(self) -> bool {
        matches!(self, Charset::Utf8mb3 | Charset::Utf8mb4 | Charset::Ascii)
    }
    /// A character of ASCII has several bytes.
    pub fn is_wide(self) -> bool {
        matches!(self, Charset::Ucs2 | Charset::Utf16 | Charset::Utf16le | Charset::Utf32)
    }
}

impl Collation {
    /// Of servers and connections that name none.
    pub const DEFAULT: Collation = Collation::Utf8mb40900AiCi;

    pub fn from_id(id: u16) -> Option<Collation> {
        Self::ALL.into_iter().find(|c| c.id() == id)
    }
    /// MySQL calls utf8mb3 also utf8.
    pub fn from_name(name: &str) -> Option<Collation> {
        let is = |known: &str| match known.strip_prefix("utf8mb3_") {
            Some(rest) if name.len() == rest.len() + 5 => {
                name.as_bytes()[..5].eq_ignore_ascii_case(b"utf8_")
                    && name.as_bytes()[5..].eq_ignore_ascii_case(rest.as_bytes())
            }
            _ => known.eq_ignore_ascii_case(name),
        };
        Self::ALL.into_iter().find(|c| is(c.name()))
    }
    /// Its character set means it where it is named alone.
    pub fn is_default_of_charset(self) -> bool {
        self.charset().default_collation() == self
    }
    /// As SHOW COLLATION has it: most times that a text grows when it becomes MySQL's sort key.
    pub fn sort_length(self) -> u8 {
        match self {
            Collation::Latin1German2Ci | Collation::Gb18030ChineseCi => 2,
            Collation::Tis620ThaiCi => 4,
            _ if self.name().ends_with("_unicode_ci") || self.name().ends_with("_unicode_520_ci") => 8,
            Collation::Utf8mb40900AiCi | Collation::Utf8mb40900AsCi | Collation::Utf8mb40900AsCs => 0,
            _ => 1,
        }
    }
    /// Trailing spaces do not count.
    pub fn pads(self) -> bool {
        use Collation::*;
        !matches!(self, Binary | Utf8mb40900AiCi | Utf8mb40900AsCi | Utf8mb40900AsCs | Utf8mb40900Bin)
    }
    /// It compares bytes or code points.
    pub fn is_binary(self) -> bool {
        self == self.charset().binary_collation() || self == Collation::Utf8mb40900Bin
    }
    pub fn ignores_case(self) -> bool {
        use Collation::*;
        let tells_case =
            matches!(self, Cp1251GeneralCs | Latin1GeneralCs | Latin7EstonianCs | Latin7GeneralCs | Utf8mb40900AsCs);
        !self.is_binary() && !tells_case
    }
}
