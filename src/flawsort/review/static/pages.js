// The pages of a run, in the order of their tabs and of the keys Alt + 1, 2 and so on. To add a page,
// write its script and put its class here.
//
// A page is a class with
//   static place, title   its address after the #, and the text of its tab
//   static rail           whether the list of groups is shown beside it
//   static keys           its own keys for the help, as [key, description]; optional
//   constructor(shell)    shell.go(place, group) opens another page; call shell.changed() after showing another group
//   node                  its element
//   draw(group)           shows the run and its current groups. group: the id chosen in the list, or "all"
// and optionally
//   listed()              the entry marked in the list of groups: an id, "all" or null
//   choose(id)            called on a click in the list; without it, the click opens the groups page
//   show(id)              goes to a group that an edit has made
//   group(), row()        the group id and the image that keys apply to, or null
//   key(event)            handles a key of the page, and returns whether it did
//   focus()               takes the keyboard focus

import { ExportPage } from "./exportpage.js";
import { GroupsPage } from "./groupspage.js";
import { MapPage } from "./mappage.js";
import { NewPage } from "./newpage.js";
import { QueuePage } from "./queuepage.js";
import { TreePage } from "./treepage.js";

export const PAGES = [GroupsPage, MapPage, TreePage, QueuePage, NewPage, ExportPage];
