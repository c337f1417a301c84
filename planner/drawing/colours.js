// Colours: one hue for each micro-batch, one lightness for each kind of pass.

// OKLCH to sRGB (Björn Ottosson, "A perceptual color space for image processing", 2020): hues of one lightness
// look equally light, which HSL does not give.
function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos(hue * Math.PI / 180), b = chroma * Math.sin(hue * Math.PI / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3;
  const linear = [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
                  -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
                  -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s];
  const channels = linear.map(c => {
    const clipped = Math.min(1, Math.max(0, c));
    return Math.round(255 * (clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055));
  });
  return `rgb(${channels.join(" ")})`;
}

const SHADES = {
  forward: {lightness: 0.86, chroma: 0.075, ink: "#1d2733"},
  backward: {lightness: 0.58, chroma: 0.125, ink: "#ffffff"},
  input: {lightness: 0.66, chroma: 0.125, ink: "#ffffff"},
  weight: {lightness: 0.78, chroma: 0.10, ink: "#1d2733", hatched: true},
};
const GOLDEN_ANGLE = 137.508;
const colourCache = new Map();

// Neighbouring micro-batches are the golden angle apart, so that they never look alike.
function colourOf(microBatch, shade) {
  const key = microBatch + shade;
  let colour = colourCache.get(key);
  if (colour === undefined) {
    const {lightness, chroma} = SHADES[shade];
    colour = oklch(lightness, chroma, (250 + microBatch * GOLDEN_ANGLE) % 360);
    colourCache.set(key, colour);
  }
  return colour;
}

const WHOLE_ITERATION_COLOUR = "#8a96a3";
const LOWER_BOUND_COLOUR = "#12805c";
const LIMIT_COLOUR = "#c62b2b";
const LAST_BACKWARD_COLOUR = "#5b6875";

// Where the time of a rank goes, in the order of the bars; rank.bubble is in the order of v1.Bubble.
const TIME_PARTS = [
  {name: "busy", colour: "#7c9cc4", of: rank => rank.busy},
  {name: "fill", colour: "#f3c64f", of: rank => rank.bubble[0]},
  {name: "dependency", colour: "#d9534f", of: rank => rank.bubble[2]},
  {name: "transfer", colour: "#1f9aa8", of: rank => rank.bubble[3]},
  {name: "memory", colour: "#3f4a55", of: rank => rank.bubble[5]},
  {name: "stage group", colour: "#b0577d", of: rank => rank.bubble[6]},
  {name: "drain", colour: "#ee9544", of: rank => rank.bubble[1]},
  {name: "replica imbalance", colour: "#8a63b5", of: rank => rank.bubble[4]},
];
