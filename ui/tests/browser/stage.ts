// Setup of most tests of the page: one browser for each file, and a stand-in controller for each
// test.
import { after, afterEach, before, beforeEach } from "node:test";
import { furnish } from "./furnished";
import { StandIn } from "./stand-in";
import { Browser, noBrowser } from "./support";

export let controller: StandIn;
export let browser: Browser;
/** Skips tests without a browser. */
export const options = { skip: noBrowser };

/** Starts both; `prepare` sets the controller's answers. */
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
