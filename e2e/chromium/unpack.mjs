// Unpacks the Chromium that the package holds into this folder: the program, its libraries and a font. Then removes the packages.

import { createReadStream, createWriteStream } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { createBrotliDecompress } from 'node:zlib';

import tar from 'tar-fs';

const unpack = (name, target) =>
  pipeline(createReadStream(`node_modules/@sparticuz/chromium/bin/${name}.br`), createBrotliDecompress(), target);

await unpack('chromium', createWriteStream('chromium', { mode: 0o755 }));
// The folder `lib`.
await unpack('al2023.tar', tar.extract('.'));
await unpack('fonts.tar', tar.extract('.'));
await writeFile('fonts.conf', `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir prefix="relative">fonts</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>
`);
await rm('node_modules', { recursive: true });
