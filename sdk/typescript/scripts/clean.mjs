// Deletes folders of build results, named by arguments, so that no file of a former build is packed or tested.

import { rmSync } from 'node:fs';

for (const folder of process.argv.slice(2)) rmSync(new URL(`../${folder}/`, import.meta.url), { recursive: true, force: true });
