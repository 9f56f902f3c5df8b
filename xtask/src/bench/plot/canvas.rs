//! An image that is drawn on and becomes a PNG.

use std::convert::Infallible;

use anyhow::Result;
use embedded_graphics::{
    mono_font::{MonoFont, MonoTextStyle},
    pixelcolor::Rgb888,
    prelude::*,
    primitives::{Line, PrimitiveStyle, Rectangle},
    text::{Alignment, Text},
};

/// An image in memory.
pub(super) struct Canvas {
    size: Size,
    /// Row by row.
    pixels: Vec<Rgb888>,
}

impl Canvas {
    pub(super) fn new(size: Size, background: Rgb888) -> Self {
        let pixels = size.width as usize * size.height as usize;
        Self {
            size,
            pixels: vec![background; pixels],
        }
    }

    pub(super) fn text(&mut self, text: &str, at: Point, align: Alignment, font: &MonoFont<'_>, color: Rgb888) {
        let style = MonoTextStyle::new(font, color);
        let Ok(_) = Text::with_alignment(text, at, style, align).draw(self);
    }

    pub(super) fn line(&mut self, from: Point, to: Point, color: Rgb888) {
        let Ok(()) = Line::new(from, to)
            .into_styled(PrimitiveStyle::with_stroke(color, 1))
            .draw(self);
    }

    pub(super) fn fill(&mut self, area: Rectangle, color: Rgb888) {
        let Ok(()) = area.into_styled(PrimitiveStyle::with_fill(color)).draw(self);
    }

    /// A round dot that what lies below shines through, so that a crowd of them is darker than one.
    pub(super) fn dot(&mut self, center: Point, color: Rgb888) {
        for y in -2..=2_i32 {
            for x in -2..=2_i32 {
                // A core with a softer edge.
                let parts = match x * x + y * y {
                    0..=2 => 5,
                    3..=5 => 2,
                    _ => continue,
                };
                if let Some(pixel) = self.pixel(center + Point::new(x, y)) {
                    *pixel = mixed(*pixel, color, parts);
                }
            }
        }
    }

    fn pixel(&mut self, at: Point) -> Option<&mut Rgb888> {
        let (x, y) = (u32::try_from(at.x).ok()?, u32::try_from(at.y).ok()?);
        let inside = x < self.size.width && y < self.size.height;
        let index = inside.then(|| y as usize * self.size.width as usize + x as usize)?;
        self.pixels.get_mut(index)
    }

    pub(super) fn png(&self) -> Result<Vec<u8>> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.size.width, self.size.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::High);
        let bytes: Vec<_> = self
            .pixels
            .iter()
            .flat_map(|pixel| [pixel.r(), pixel.g(), pixel.b()])
            .collect();
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&bytes)?;
        writer.finish()?;
        Ok(file)
    }
}

/// So many tenths of a colour over another.
fn mixed(below: Rgb888, above: Rgb888, parts: u8) -> Rgb888 {
    let mix = |below: u8, above: u8| {
        let sum = u16::from(below) * u16::from(10 - parts) + u16::from(above) * u16::from(parts);
        u8::try_from(sum / 10).unwrap_or(u8::MAX)
    };
    Rgb888::new(
        mix(below.r(), above.r()),
        mix(below.g(), above.g()),
        mix(below.b(), above.b()),
    )
}

// === impl DrawTarget for Canvas ===

impl DrawTarget for Canvas {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        for Pixel(at, color) in pixels {
            // What is outside is not seen.
            if let Some(pixel) = self.pixel(at) {
                *pixel = color;
            }
        }
        Ok(())
    }
}

impl OriginDimensions for Canvas {
    fn size(&self) -> Size {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_in_the_file() {
        let (white, red) = (Rgb888::WHITE, Rgb888::RED);
        let mut canvas = Canvas::new(Size::new(5, 4), white);
        canvas.line(Point::new(0, 1), Point::new(9, 1), red);
        canvas.dot(Point::new(-1, 0), red);
        let file = canvas.png().unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height, pixels.len()), (5, 4, 5 * 4 * 3));
        assert_eq!(pixels[15..30], [255, 0, 0].repeat(5));
        assert_eq!(pixels[45..], [255; 15]);
        // The edge of the dot, mixed with what is below.
        assert_eq!(pixels[..3], [255, 127, 127]);
    }
}
