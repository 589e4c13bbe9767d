// What most tests of the page stand on: one browser for those of a file, and a controller of its own
// for each.
import { after, afterEach, before, beforeEach } from "node:test";
import { furnish } from "./furnished";
import { StandIn } from "./stand-in";
import { Browser, noBrowser } from "./support";

export let controller: StandIn;
export let browser: Browser;
/** Tests are skipped where there is no browser. */
export const options = { skip: noBrowser };

/** Has both made; `prepare` says what the controller knows. */
export function setUp(prepare: (controller: StandIn) => void = furnish): void {
  before(async () => {
    if (!noBrowser) browser = await Browser.open();
  });
  after(() => browser?.close());
  beforeEach(async () => {
    controller = await StandIn.start();
    prepare(controller);
  });
  afterEach(() => controller.stop());
}
