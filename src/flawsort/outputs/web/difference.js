// What differs between two pictures of one size, such as an unusual place and the place that matches it.

// A difference of this many of 255 levels in one colour is shown as the largest. The scale is the same for all
// pictures: good parts must look alike.
const FULL = 64;
const LEVELS = 256;

// here, there: loaded images. Returns a canvas: black where they are alike, white where they differ most.
export function differenceOf(here, there) {
  const [width, height] = [here.naturalWidth, here.naturalHeight];
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width, height, className: "difference" });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const [one, other] = [here, there].map((image) => {
    context.drawImage(image, 0, 0, width, height);
    return context.getImageData(0, 0, width, height).data;
  });
  const shown = context.createImageData(width, height);
  for (let i = 3; i < shown.data.length; i += 4) shown.data[i] = 255;
  for (let colour = 0; colour < 3; colour++) {
    const apart = smooth(subtracted(one, other, colour), width, height);
    const usual = median(apart); // a difference in brightness of the whole pictures is left out
    apart.forEach((value, i) => {
      const level = Math.min(255, (255 * Math.abs(value - usual)) / FULL);
      for (let c = 0; c < 3; c++) shown.data[4 * i + c] = Math.max(shown.data[4 * i + c], level);
    });
  }
  context.putImageData(shown, 0, 0);
  return canvas;
}

function subtracted(one, other, colour) {
  return Float32Array.from({ length: one.length / 4 }, (_, i) => one[4 * i + colour] - other[4 * i + colour]);
}

// The mean of nine neighbours, so that noise does not count.
function smooth(values, width, height) {
  const across = new Float32Array(values.length);
  const both = new Float32Array(values.length);
  const near = (at, end) => [Math.max(0, at - 1), at, Math.min(end - 1, at + 1)];
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) across[y * width + x] = near(x, width).reduce((sum, i) => sum + values[y * width + i], 0) / 3;
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) both[y * width + x] = near(y, height).reduce((sum, i) => sum + across[i * width + x], 0) / 3;
  return both;
}

function median(values) {
  const counts = new Uint32Array(2 * LEVELS);
  for (const value of values) counts[Math.round(value) + LEVELS]++;
  let seen = 0;
  return counts.findIndex((n) => (seen += n) > values.length / 2) - LEVELS;
}
