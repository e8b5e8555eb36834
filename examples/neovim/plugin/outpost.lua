-- Defines `:Outpost`. The server itself is started by `vim.lsp.enable("outpost")`.
if vim.g.loaded_outpost then
  return
end
vim.g.loaded_outpost = true

vim.api.nvim_create_user_command("Outpost", function(context)
  require("outpost.commands").run(context)
end, {
  nargs = "*",
  range = true,
  desc = "Review, coordinate, steer and apply with Outpost",
  complete = function(lead, line)
    return require("outpost.commands").complete(lead, line)
  end,
})

-- Opt-in: `vim.g.outpost_review_on_save = true` and `vim.g.outpost_review_on_commit = true`.
require("outpost.automatic").watch()
